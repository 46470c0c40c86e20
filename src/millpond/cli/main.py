"""The `millpond` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from millpond import __version__
from millpond.cli import (
    application,
    cancel,
    checkpoints,
    completion,
    dashboard,
    job_info,
    job_list,
    logs,
    machine,
    plug_ins,
    run,
    savepoints,
    state_query,
)
from millpond.cli.cluster import start, stop
from millpond.cli.exit_codes import ExitCode, code_of
from millpond.errors import MillpondError

_RUN_PROGRAMS = ("run", "run-application", "info")


def build_parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands. Each command sets `call`: a function that takes the parsed arguments
    and returns an exit code.

    If `arguments` name one of our own commands, plug-ins are not loaded. If they name a command that does not
    exist, this exits with an error message, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="millpond",
        description="Stateful stream processing in Python, on Apache Spark.",
        epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no dispatcher answers, 4 no such job, "
        "130 interrupted. `millpond COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="version", version=f"millpond {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (
        *(run, application, start, stop, dashboard),
        *(job_list, job_info, logs, cancel, savepoints, checkpoints, state_query),
        machine,
    ):
        module.add_commands(commands)
    completion.add_commands(commands, build_parser)
    wanted = next((argument for argument in arguments or () if not argument.startswith("-")), None)
    if wanted not in commands.choices:
        plug_ins.add_commands(commands, wanted)
    if wanted is not None and wanted not in commands.choices:
        parser.error(
            f"there is no command '{wanted}'. The commands are {', '.join(commands.choices)}. If the command "
            "comes from a plug-in, pip install the package that provides it."
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (default: those of this process) name, and return its exit code.
    Errors of Millpond are printed to standard error, without a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    parsed = build_parser(given).parse_args(given)
    try:
        return int(parsed.call(parsed))
    except MillpondError as problem:
        print(f"millpond: {problem}", file=sys.stderr)
        return code_of(problem)
    except KeyboardInterrupt:
        print("\nmillpond: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        if parsed.command in _RUN_PROGRAMS or plug_ins.is_from_plug_in(parsed):
            raise  # the user's program may have caused it
        # Whoever reads our output has closed it, as `head` does. Nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
