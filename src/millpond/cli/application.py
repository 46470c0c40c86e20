"""`millpond run-application`: one job, supervised by this process, without a dispatcher (O4)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.cli.client.connection import LOOPBACK
from millpond.cli.cluster.record import cluster_folder
from millpond.cli.exit_codes import UsageError
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
    tokens = application.add_mutually_exclusive_group()
    tokens.add_argument(
        "--rest-token-file",
        metavar="FILE",
        help="requests must have the token in this file (default: token in the storage, made if missing)",
    )
    tokens.add_argument(
        "--rest-no-token",
        action="store_true",
        help="let everybody who reaches it use it: every user of this machine can run programs as you",
    )
    application.add_argument("--rest-tls-cert", metavar="FILE", help="certificate: speak TLS")
    application.add_argument("--rest-tls-key", metavar="FILE", help="the certificate's key")
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
            **_rest(parsed),
        )
    )


def _rest(parsed: argparse.Namespace) -> dict[str, Any]:
    """As in DispatcherSettings; empty: none is wanted."""
    files = {
        "--rest-token-file": parsed.rest_token_file,
        "--rest-tls-cert": parsed.rest_tls_cert,
        "--rest-tls-key": parsed.rest_tls_key,
    }
    if parsed.rest_port is None:
        useless = [name for name, path in files.items() if path]
        useless += ["--rest-no-token"] if parsed.rest_no_token else []
        if useless:
            raise UsageError(f"{useless[0]} needs --rest-port")
        return {}
    if bool(parsed.rest_tls_cert) != bool(parsed.rest_tls_key):
        raise UsageError("--rest-tls-cert and --rest-tls-key belong together")
    for path in files.values():
        if path and not Path(path).is_file():
            raise UsageError(f"there is no file {path}")
    if parsed.rest_no_token and parsed.rest_host not in LOOPBACK:
        raise UsageError("--rest-no-token is for a --rest-host that only this machine reaches")
    token_file = parsed.rest_token_file
    return {
        "host": parsed.rest_host,
        "port": parsed.rest_port,
        "token_file": Path(token_file).absolute() if token_file else None,
        "no_token": parsed.rest_no_token,
        "tls_cert": parsed.rest_tls_cert,
        "tls_key": parsed.rest_tls_key,
    }


def _runner() -> Callable[..., int]:
    try:
        from millpond.dispatcher import application
    except ImportError as problem:
        raise SetupError(
            f"run-application needs {problem.name}: pip install 'millpond[cluster]'."
        ) from None
    found: Callable[..., int] = application.run_application
    return found
