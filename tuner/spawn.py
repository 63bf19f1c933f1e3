"""A fresh process of this package, talked to over pipes: unlike the child of a fork, it inherits nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

from .protocol import Channel

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from {module} import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class Spawned:
    """A process that runs `main(read_fd, write_fd)` of a module beside this one."""

    def __init__(self, module: str) -> None:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        package = __name__.rpartition(".")[0]
        # It needs one thread of NumPy's, and starts faster with it.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        start = _START.format(module=f"{package}.{module}")
        self._process = subprocess.Popen(
            [sys.executable, "-c", start, json.dumps(sys.path), str(there_read), str(there_write)],
            pass_fds=(there_read, there_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a group of its own, so that its children end with it
        )
        os.close(there_read)
        os.close(there_write)
        self.channel = Channel(here_read, here_write)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """Ends the process and its children."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
