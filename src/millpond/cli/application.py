"""`millpond run-application`: runs one job, supervised by this process, without a dispatcher (O4)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from millpond.cli.client.connection import LOOPBACK
from millpond.cli.cluster.record import cluster_folder
from millpond.cli.commands import Commands
from millpond.cli.exit_codes import UsageError
from millpond.cli.programs import (
    add_program,
    add_restore_options,
    add_setting_options,
    check_program,
    python_files,
    settings_of,
    with_python_files,
)
from millpond.errors import SetupError


def add_commands(commands: Commands) -> None:
    """Add `run-application`."""
    application = commands.add_parser(
        "run-application",
        help="run and supervise one job without a dispatcher, for example in its own container",
        description="Run a program's job, and restart it whenever its process dies. Run the command again "
        "with the same --storage, after a crash or on another machine, and the job resumes where it was. "
        "The exit code is 0 if the job has finished.",
    )
    add_setting_options(application)
    add_restore_options(application)
    application.add_argument(
        "--storage",
        metavar="DIR",
        help="folder for the job, on a file system that outlives this process and that all workers can see "
        "(default: applications/PROGRAM in $MILLPOND_HOME or ~/.millpond)",
    )
    _add_rest_options(application)
    add_program(application)
    application.set_defaults(call=_run)


def _add_rest_options(application: argparse.ArgumentParser) -> None:
    application.add_argument(
        "--rest-port",
        type=int,
        metavar="PORT",
        help="serve REST, metrics and the dashboard of this job on this port; 0 picks a free port "
        "(default: do not serve)",
    )
    application.add_argument(
        "--rest-host",
        default="127.0.0.1",
        metavar="HOST",
        help="address to listen on (default: 127.0.0.1)",
    )
    tokens = application.add_mutually_exclusive_group()
    tokens.add_argument(
        "--rest-token-file",
        metavar="FILE",
        help="file with the token that requests must carry (default: `token` in the storage folder, created "
        "if missing)",
    )
    tokens.add_argument(
        "--rest-no-token",
        action="store_true",
        help="accept requests without a token: every user of this machine can then run programs as you",
    )
    application.add_argument(
        "--rest-tls-cert", metavar="FILE", help="certificate (PEM) with which to serve TLS"
    )
    application.add_argument(
        "--rest-tls-key", metavar="FILE", help="private key (PEM) of the certificate"
    )


def _run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    program = check_program(parsed.program)
    settings = with_python_files(settings, python_files(parsed))
    storage = parsed.storage or cluster_folder(None) / "applications" / program.resolve().stem
    return _runner()(
        program.absolute(),
        list(parsed.arguments),
        settings,
        Path(storage).absolute(),
        **_rest(parsed),
    )


def _rest(parsed: argparse.Namespace) -> dict[str, object]:
    """Return the fields of DispatcherSettings that say how to serve REST; empty if it is not to be served."""
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
        raise UsageError("--rest-tls-cert and --rest-tls-key must be given together")
    for name, path in files.items():
        if path and not Path(path).is_file():
            raise UsageError(f"{name}: there is no file {path}")
    if parsed.rest_no_token and parsed.rest_host not in LOOPBACK:
        raise UsageError(
            "--rest-no-token is allowed only if --rest-host is a loopback address, such as 127.0.0.1"
        )
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
    return application.run_application
