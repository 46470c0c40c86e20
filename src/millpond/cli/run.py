"""`millpond run`: runs a program, on a cluster if there is one, else in this process."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from millpond.cli.client.connection import Target, add_connection_options, find_target
from millpond.cli.client.following import follow, root_cause
from millpond.cli.client.rest import HOW_TO_START, RestClient
from millpond.cli.cluster.record import cluster_folder, read_cluster
from millpond.cli.exit_codes import ExitCode, UsageError
from millpond.cli.packing import pack
from millpond.cli.programs import (
    ALLOW_NON_RESTORED_KEY,
    PARALLELISM_KEY,
    SAVEPOINT_KEY,
    add_program,
    add_restore_options,
    add_setting_options,
    check_program,
    python_files,
    run_here,
    settings_of,
)
from millpond.cli.progress import Progress
from millpond.cli.texts import size_text
from millpond.errors import DispatcherError, DispatcherUnreachableError


def add_commands(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a program",
        description="Run a Python program that uses Millpond, with settings given here. If a dispatcher is "
        "named, or start-cluster has started one, the program is sent to it; else it runs in this process.",
    )
    run.add_argument(
        "-d", "--detached", action="store_true", help="print the job's id and do not wait"
    )
    run.add_argument(
        "--here", action="store_true", help="run in this process although there is a cluster"
    )
    add_setting_options(run)
    add_restore_options(run)
    run.add_argument(
        "--json",
        action="store_true",
        help="with a dispatcher: print the job's id and state as JSON",
    )
    add_connection_options(run)
    add_program(run)
    run.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    program = check_program(parsed.program)
    files = python_files(parsed)
    if parsed.here and (parsed.address or parsed.detached):
        raise UsageError("--here cannot be together with --address or -d")
    target = None if parsed.here else find_target(parsed)
    if target is not None:
        return _run_there(parsed, target, program, settings, files)
    if parsed.detached:
        raise DispatcherUnreachableError(f"-d needs a dispatcher. {HOW_TO_START}")
    if parsed.json:
        raise UsageError("--json tells about a job of a dispatcher, and there is none")
    _warn_of_dead_cluster(parsed)
    _use_secret_of(cluster_folder(parsed.dir), parsed.master)
    run_here(parsed.program, parsed.arguments, settings, files)
    return ExitCode.OK


def _warn_of_dead_cluster(parsed: argparse.Namespace) -> None:
    folder = cluster_folder(parsed.dir)
    if not parsed.here and read_cluster(folder) is not None:
        print(
            f"millpond: the dispatcher of {folder} has ended, so the program runs in this process",
            file=sys.stderr,
        )


def _use_secret_of(folder: Path, master: str | None) -> None:
    """A Spark that start-cluster has started speaks to those only who have its secret."""
    record = read_cluster(folder)
    if record is not None and master is not None and master == record.master:
        os.environ.setdefault("SPARK_CONF_DIR", str(folder / "spark" / "conf"))


def _run_there(
    parsed: argparse.Namespace,
    target: Target,
    program: Path,
    settings: dict[str, str],
    files: list[Path],
) -> int:
    with target.connect() as client:
        where = client.addresses[0]
        print(f"millpond: running on {where} ({target.reason})", file=sys.stderr)
        jid = _submit(client, program, settings, files, parsed.arguments)
        if parsed.detached:
            print(json.dumps({"jobid": jid}) if parsed.json else jid)
            return ExitCode.OK
        print(f"millpond: job {jid}", file=sys.stderr)
        try:
            state = follow(client, jid)
        except KeyboardInterrupt:
            print(f"\nmillpond: the job goes on. To end it: millpond cancel {jid}", file=sys.stderr)
            return ExitCode.INTERRUPTED
        except DispatcherUnreachableError as problem:
            raise DispatcherUnreachableError(
                f"{problem} The job {jid} may still run; `millpond logs -f {jid}` goes on with it."
            ) from None
        if parsed.json:
            print(json.dumps({"jobid": jid, "state": state}))
        if state == "FINISHED":
            return ExitCode.OK
        # The log has been shown, and tells more.
        reason = f": {root_cause(client, jid).splitlines()[0]}" if state == "FAILED" else ""
        print(f"millpond: the job {jid} ended: {state}{reason}", file=sys.stderr)
        return ExitCode.FAILED


def _submit(
    client: RestClient,
    program: Path,
    settings: dict[str, str],
    files: list[Path],
    arguments: list[str],
) -> str:
    """The new job's id."""
    with tempfile.TemporaryDirectory(prefix="millpond-") as aside, Progress() as progress:
        package, beside = pack(program, files, Path(aside))
        if beside:
            print(f"millpond: sent along: {', '.join(beside)}", file=sys.stderr)
        total = size_text(package.stat().st_size)
        application = client.upload(
            package, lambda sent: progress.show(f"uploading {size_text(sent)} of {total}")
        )
        progress.show("starting the job ...")
        try:
            answer = client.post(f"/jars/{application}/run", _body(settings, arguments))
        finally:
            # The job has a copy. What cannot be deleted does no harm.
            with contextlib.suppress(DispatcherError):
                client.delete(f"/jars/{application}")
    try:
        return str(answer["jobid"])
    except (KeyError, TypeError):
        raise DispatcherError(f"The dispatcher gave no id for the job: {answer}.") from None


def _body(settings: dict[str, str], arguments: list[str]) -> dict[str, Any]:
    """Flink has fields of their own for some settings."""
    rest = dict(settings)
    body: dict[str, Any] = {"programArgsList": arguments}
    if PARALLELISM_KEY in rest:
        text = rest.pop(PARALLELISM_KEY)
        if not text.isdecimal():
            raise UsageError(f"{PARALLELISM_KEY} must be a number, not '{text}'")
        if int(text) > 0:
            body["parallelism"] = int(text)
    if SAVEPOINT_KEY in rest:
        body["savepointPath"] = rest.pop(SAVEPOINT_KEY)
    if rest.pop(ALLOW_NON_RESTORED_KEY, "false").lower() == "true":
        body["allowNonRestoredState"] = True
    return {**body, "flinkConfiguration": rest}
