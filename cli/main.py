"""The command line: which verbs there are, and what an error looks like to a user.

Exit codes: 0 done (also when nothing won), 1 a failed run, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from types import TracebackType
from typing import TextIO

import click

from .. import __version__
from ..graphs.errors import GraphError, InputError, StitchtuneError
from .options import print_json

VERBS = {
    "tune": ".tuning",
    "inspect": ".inspection",
    "run": ".running",
    "source": ".running",
    "report": ".tuning",
    "plans": ".plan_verbs",
    "bench": ".bench",
    "doctor": ".doctor",
}
"""Each verb and the module that holds its `command`; imported when asked for, so that `--help` is quick."""


class Verbs(click.Group):
    """A group whose commands are imported on demand; a first word that is no verb is a graph to tune."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = getattr(import_module(VERBS[cmd_name], __package__), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        if args and args[0] not in VERBS and args[0] not in own:
            args = ["tune", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="stitchtune")
def verbs() -> None:
    """Finds the memory-intensive subgraphs of an exported ML graph, searches for the fastest way to stitch each into
    few kernels, remembers the best plan, and runs the graph with it.

    `tune.py GRAPH` is short for `tune.py tune GRAPH`. Every verb takes --debug, which shows a traceback.
    """


def invoke(arguments: Sequence[str], state: dict[str, bool] | None = None) -> int:
    """Run the command line; the exit code. Errors that a user can mend are one line on standard error.

    `state` is told, under "printed", when a JSON document went out.
    """
    state = {} if state is None else state
    try:
        result = verbs.main(
            [a for a in arguments if a != "--debug"], prog_name="tune.py", standalone_mode=False, obj=state
        )
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except (StitchtuneError, click.ClickException, OSError, MemoryError) as error:
        if "--debug" in arguments:
            raise
        message, code = _told(error)
    except (KeyboardInterrupt, click.Abort):
        message, code = "interrupted", 130
    else:
        return result if isinstance(result, int) else 0
    print(f"error: {message}", file=sys.stderr)
    if "--json" in arguments and not state.get("printed"):
        print_json({"error": message, "code": code})
    return code


def _told(error: Exception) -> tuple[str, int]:
    """The one line that an error is for a user, and its exit code."""
    match error:
        case click.UsageError():
            message, code = _usage(error), 2
        case click.ClickException():
            message, code = error.format_message(), 2
        case GraphError() | InputError():
            message, code = str(error), 2
        case MemoryError():
            message, code = f"not enough memory: {error}", 1
        case _:
            message, code = str(error), 1
    return " ".join(message.split()), code


def _usage(error: click.UsageError) -> str:
    context = error.ctx.command_path if error.ctx else "tune.py"
    return f"{error.format_message()} (see {context} --help)"


def _hook(state: dict[str, bool]) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """What an unforeseen exception prints, a bug of ours: one line and the way to more, with --json a document too."""

    def one_line(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        message = f"internal error: {kind.__name__}: {' '.join(str(error).split())} (run again with --debug)"
        print(message, file=sys.stderr)
        if "--json" in sys.argv and not state.get("printed"):
            print_json({"error": message, "code": 1})

    return one_line


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings as a user reads them; where in our code they arose is no help."""
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


def main() -> None:
    """The entry point of the script and of the installed command."""
    warnings.showwarning = _warn
    if sys.stdout is None:  # the caller closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error does: a name never stops a run
    state: dict[str, bool] = {}
    if "--debug" not in sys.argv:
        sys.excepthook = _hook(state)
    sys.exit(invoke(sys.argv[1:], state))
