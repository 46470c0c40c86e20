"""`millpond run-application`: one job, supervised by this process, without a dispatcher (O4)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.cli.cluster_file import cluster_folder
from millpond.cli.programs import (
    PYTHON_FILES_KEY,
    add_program,
    add_restore_options,
    add_setting_options,
    check_program,
    python_files,
    settings_of,
)
from millpond.errors import SetupError


def add_commands(commands: Any) -> None:
    application = commands.add_parser(
        "run-application",
        help="run and supervise one job without a dispatcher, as in a container of its own",
        description="Run a program's job and start it again when its process ends. Started again after a "
        "crash or on another machine with the same --storage, it goes on where it was. Exit code 0: it has "
        "finished.",
    )
    add_setting_options(application)
    add_restore_options(application)
    application.add_argument(
        "--storage",
        metavar="DIR",
        help="folder that outlives this process and that workers see "
        "(default: applications/PROGRAM in $MILLPOND_HOME or ~/.millpond)",
    )
    application.add_argument(
        "--rest-port",
        type=int,
        metavar="PORT",
        help="also serve REST, metrics and the dashboard for this job there; 0: any free port",
    )
    application.add_argument(
        "--rest-host", default="127.0.0.1", metavar="HOST", help="address to serve at (127.0.0.1)"
    )
    add_program(application)
    application.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    program = check_program(parsed.program)
    files = [own for own in (settings.get(PYTHON_FILES_KEY),) if own]
    files += map(str, python_files(parsed))
    if files:
        settings[PYTHON_FILES_KEY] = ",".join(files)
    storage = parsed.storage or cluster_folder(None) / "applications" / program.resolve().stem
    return int(
        _runner()(
            program.absolute(),
            list(parsed.arguments),
            settings,
            Path(storage).absolute(),
            parsed.rest_host,
            parsed.rest_port,
        )
    )


def _runner() -> Callable[..., int]:
    try:
        from millpond.dispatcher import application
    except ImportError as problem:
        raise SetupError(
            f"run-application needs {problem.name}: pip install 'millpond[cluster]'."
        ) from None
    found: Callable[..., int] = application.run_application
    return found
