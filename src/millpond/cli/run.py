"""`millpond run`: runs a program, on a cluster if there is one, otherwise in this process."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from millpond.cli.client.connection import Target, add_connection_options, find_target
from millpond.cli.client.following import follow, root_cause
from millpond.cli.client.rest import HOW_TO_START, RestClient
from millpond.cli.cluster.record import cluster_folder, read_cluster
from millpond.cli.commands import Commands
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


def add_commands(commands: Commands) -> None:
    """Add `run`."""
    run = commands.add_parser(
        "run",
        help="run a program",
        description="Run a Python program that uses Millpond. If you name a dispatcher, or start-cluster has "
        "started one, the program is sent to it; otherwise it runs in this process.",
    )
    run.add_argument(
        "-d",
        "--detached",
        action="store_true",
        help="print the job's id and return, without waiting for the job to end",
    )
    run.add_argument(
        "--here", action="store_true", help="run in this process even if there is a cluster"
    )
    add_setting_options(run)
    add_restore_options(run)
    run.add_argument(
        "--json",
        action="store_true",
        help="print the job's id and final state as JSON; needs a dispatcher",
    )
    add_connection_options(run)
    add_program(run)
    run.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    program = check_program(parsed.program)
    files = python_files(parsed)
    if parsed.here and (parsed.address or parsed.detached):
        raise UsageError("--here cannot be used together with --address or -d")
    target = None if parsed.here else find_target(parsed)
    if target is not None:
        return _run_there(parsed, target, program, settings, files)
    if parsed.detached:
        raise DispatcherUnreachableError(f"-d needs a dispatcher. {HOW_TO_START}")
    if parsed.json:
        raise UsageError("--json needs a dispatcher, and there is none")
    _warn_of_dead_cluster(parsed)
    _use_secret_of(cluster_folder(parsed.dir), parsed.master)
    run_here(parsed.program, parsed.arguments, settings, files)
    return ExitCode.OK


def _warn_of_dead_cluster(parsed: argparse.Namespace) -> None:
    folder = cluster_folder(parsed.dir)
    if not parsed.here and read_cluster(folder) is not None:
        print(
            f"millpond: the dispatcher of the cluster in {folder} is not running, so the program runs in "
            "this process",
            file=sys.stderr,
        )


def _use_secret_of(folder: Path, master: str | None) -> None:
    """Use the settings of the Spark that start-cluster started, if that is the master: it only accepts
    drivers that have its secret."""
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
    from millpond.common.job import JobStatus

    with target.connect() as client:
        where = client.addresses[0]
        print(f"millpond: running on {where} ({target.reason})", file=sys.stderr)
        jid = _submit(client, program, settings, files, parsed.arguments)
        if parsed.detached:
            print(json.dumps({"jobid": jid}) if parsed.json else jid)
            return ExitCode.OK
        print(f"millpond: job {jid}", file=sys.stderr)
        try:
            status = follow(client, jid)
        except KeyboardInterrupt:
            print(
                f"\nmillpond: the job keeps running. To end it: millpond cancel {jid}",
                file=sys.stderr,
            )
            return ExitCode.INTERRUPTED
        except DispatcherUnreachableError as problem:
            raise DispatcherUnreachableError(
                f"{problem} The job {jid} may still be running. To follow it again: millpond logs -f {jid}"
            ) from None
        if parsed.json:
            print(json.dumps({"jobid": jid, "state": status.name}))
        if status is JobStatus.FINISHED:
            return ExitCode.OK
        reason = ""
        if (
            status is JobStatus.FAILED
        ):  # the first line is enough: the log, shown above, has the rest
            reason = f": {root_cause(client, jid).splitlines()[0]}"
        print(f"millpond: the job {jid} ended: {status.name}{reason}", file=sys.stderr)
        return ExitCode.FAILED


def _submit(
    client: RestClient,
    program: Path,
    settings: dict[str, str],
    files: list[Path],
    arguments: list[str],
) -> str:
    """Send the program to the dispatcher, start its job and return the job's id."""
    with tempfile.TemporaryDirectory(prefix="millpond-") as aside, Progress() as progress:
        package, beside = pack(program, files, Path(aside))
        if beside:
            print(f"millpond: also sending {', '.join(beside)}", file=sys.stderr)
        total = size_text(package.stat().st_size)
        application = client.upload(
            package, lambda sent: progress.show(f"uploading {size_text(sent)} of {total}")
        )
        progress.show("starting the job ...")
        try:
            answer = client.post(f"/jars/{application}/run", _body(settings, arguments))
        finally:
            # The job has its own copy. An upload that cannot be deleted does no harm.
            with contextlib.suppress(DispatcherError):
                client.delete(f"/jars/{application}")
    try:
        return str(answer["jobid"])
    except (KeyError, TypeError):
        raise DispatcherError(
            f"The dispatcher's answer has no id of the job: {answer}. `millpond list` shows if it runs."
        ) from None


def _body(settings: dict[str, str], arguments: list[str]) -> dict[str, object]:
    """Return the body of Flink's request to run a program; some settings have a field of their own in it."""
    rest = dict(settings)
    body: dict[str, object] = {"programArgsList": arguments}
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
