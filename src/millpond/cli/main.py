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
    """Each command sets `call`, a function of the parsed arguments that returns an exit code. Plug-ins are
    left out as far as these arguments do not need them; without arguments all are there."""
    parser = argparse.ArgumentParser(
        prog="millpond",
        description="Stateful stream processing in Python, on Apache Spark.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no dispatcher answers, 4 no such job, "
        "130 interrupted.",
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
    wanted = next((own for own in arguments or () if not own.startswith("-")), None)
    if wanted not in commands.choices:
        plug_ins.add_commands(commands, wanted)
    if wanted is not None and wanted not in commands.choices:
        parser.error(
            f"there is no command '{wanted}'; there are {', '.join(commands.choices)}. One that comes with a "
            "package is found when that is installed: pip install it again if it should be there."
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
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
            raise  # it may be one of the program's own
        # The reader of our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
