#!/usr/bin/env python3
"""The command line as a script: `python tune.py GRAPH`. An installed copy has the same as `stitchtune`."""

from stitchtune.cli.main import main

if __name__ == "__main__":
    main()
