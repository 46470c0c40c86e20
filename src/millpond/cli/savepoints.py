"""`millpond savepoint` and `millpond stop`: savepoints of jobs that run in other processes."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from millpond.cli.client.connection import add_connection_options, connect, find_target
from millpond.cli.client.known_jobs import find_living_job, wait_for_end, wait_for_operation
from millpond.cli.commands import Commands
from millpond.cli.exit_codes import UsageError
from millpond.cli.job_folders import JOB_OR_FOLDER_HELP, find_job, is_job_folder, is_running
from millpond.cli.programs import absolute
from millpond.cli.progress import Progress
from millpond.errors import DispatcherError, SavepointError

_POLL_S = 0.1
_ACTIONS = ("list", "show", "dispose")


def add_commands(commands: Commands) -> None:
    """Add `savepoint` and `stop`."""
    savepoint = commands.add_parser(
        "savepoint",
        help="take a savepoint of a running job; list, show or dispose of savepoints",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "millpond savepoint JOB [DIR]     take a savepoint of a running job\n"
            "millpond savepoint list DIR      list the savepoints in a folder\n"
            "millpond savepoint show PATH     check a savepoint and show what it contains\n"
            "millpond savepoint dispose PATH  delete a savepoint\n\n"
            "JOB is the id (or the beginning of it) or the name of a dispatcher's job; or the\n"
            "folder of a job; or, with --checkpoint-dir, the name of a job."
        ),
    )
    savepoint.add_argument(
        "what", metavar="JOB|list|show|dispose", help="the job, or what to do with savepoints"
    )
    savepoint.add_argument(
        "where",
        nargs="?",
        metavar="DIR|PATH",
        help="folder of savepoints, or a savepoint (default for a new savepoint: the job's "
        "execution.checkpointing.savepoint-dir)",
    )
    savepoint.add_argument("--json", action="store_true", help="print JSON")
    _add_job_options(savepoint)
    savepoint.set_defaults(call=_run_savepoint)
    stop = commands.add_parser(
        "stop",
        help="end a running job with a savepoint",
        description="Take a savepoint of a running job and end the job with it.",
    )
    stop.add_argument("job", metavar="JOB", help=JOB_OR_FOLDER_HELP)
    stop.add_argument(
        "--savepoint",
        nargs="?",
        metavar="DIR",
        help="folder for the savepoint (default: the job's execution.checkpointing.savepoint-dir)",
    )
    stop.add_argument(
        "--drain",
        action="store_true",
        help="fire all event-time timers and close all windows first",
    )
    stop.add_argument("--json", action="store_true", help="print JSON")
    _add_job_options(stop)
    stop.set_defaults(call=_run_stop)


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help="look for the folder of the job named JOB here, without a dispatcher "
        "(the job's execution.checkpointing.dir)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds to wait for the savepoint (default: 600)",
    )
    add_connection_options(parser)


def _run_savepoint(parsed: argparse.Namespace) -> int:
    if parsed.what not in _ACTIONS:
        return _take(parsed, parsed.what, parsed.where, stop=False, drain=False)
    if parsed.where is None:
        needed = "DIR" if parsed.what == "list" else "PATH"
        raise UsageError(f"{needed} is missing: millpond savepoint {parsed.what} {needed}")
    if parsed.what == "dispose" and not Path(parsed.where).exists() and find_target(parsed):
        return _dispose_there(parsed)
    from millpond.cli import savepoint_files
    from millpond.common.paths import local_folder

    action = {
        "list": savepoint_files.list_savepoints,
        "show": savepoint_files.show_savepoint,
        "dispose": savepoint_files.dispose_savepoint,
    }[parsed.what]
    return action(local_folder(parsed.where, "The folder"), parsed.json)


def _run_stop(parsed: argparse.Namespace) -> int:
    return _take(parsed, parsed.job, parsed.savepoint, stop=True, drain=parsed.drain)


def _take(
    parsed: argparse.Namespace, job: str, directory: str | None, stop: bool, drain: bool
) -> int:
    if is_job_folder(job, parsed.checkpoint_dir):
        path = _take_by_folder(parsed, job, directory, stop, drain)
    else:
        path = _take_by_dispatcher(parsed, job, directory, stop, drain)
    print(json.dumps({"savepoint": path}) if parsed.json else path)
    return 0


# --- jobs of a dispatcher ----------------------------------------------------------------------------


def _take_by_dispatcher(
    parsed: argparse.Namespace, given: str, directory: str | None, stop: bool, drain: bool
) -> str:
    from millpond.common.job import JobStatus

    directory = None if directory is None else absolute(directory)
    with connect(parsed) as client:
        job = find_living_job(client, given)
        root = f"/jobs/{job['jid']}"
        if stop:
            body = {"targetDirectory": directory, "drain": drain}
            answer = client.post(f"{root}/stop", body)
        else:
            body = {"target-directory": directory, "cancel-job": False}
            answer = client.post(f"{root}/savepoints", body)
        request = f"{root}/savepoints/{answer['request-id']}"
        location = wait_for_operation(client, request, "savepoint", parsed.timeout)["location"]
        if stop:
            with Progress() as progress:
                status = wait_for_end(client, job["jid"], parsed.timeout, progress)
            if status is JobStatus.FAILED:
                raise DispatcherError(
                    f"The savepoint was taken ({location}), but the job failed before it ended. See "
                    f"`millpond logs {job['jid']}`."
                )
    return str(location)


def _dispose_there(parsed: argparse.Namespace) -> int:
    """Have the dispatcher delete a savepoint: a path that is unknown here may exist on its machine."""
    with connect(parsed) as client:
        answer = client.post("/savepoint-disposal", {"savepoint-path": parsed.where})
        request = f"/savepoint-disposal/{answer['request-id']}"
        wait_for_operation(client, request, "disposal", parsed.timeout)
    print(json.dumps({"disposed": parsed.where}) if parsed.json else f"disposed {parsed.where}")
    return 0


# --- jobs without a dispatcher -----------------------------------------------------------------------


def _take_by_folder(
    parsed: argparse.Namespace, job: str, directory: str | None, stop: bool, drain: bool
) -> str:
    from millpond.common.paths import local_folder

    folder = find_job(job, parsed.checkpoint_dir)
    if not is_running(folder):
        raise SavepointError(f"The job in {folder} is not running, so it cannot take a savepoint.")
    where = None if directory is None else str(local_folder(directory, "The folder for savepoints"))
    return _wait_for_savepoint(folder, where, stop, drain, parsed.timeout)


def _wait_for_savepoint(
    folder: Path, directory: str | None, stop: bool, drain: bool, timeout_s: float
) -> str:
    from millpond.driver.savepoint_requests import read_answer, request_by_file, withdraw

    order_id = request_by_file(folder, directory, stop, drain)
    started = time.monotonic()
    with Progress() as progress:
        try:
            while (answer := read_answer(folder, order_id)) is None:
                waited = time.monotonic() - started
                if not is_running(folder):
                    answer = read_answer(folder, order_id)  # it may have been written in between
                    if answer is None:
                        raise SavepointError(
                            f"The job in {folder} ended before it took the savepoint."
                        )
                    break
                if waited > timeout_s:
                    raise SavepointError(
                        f"The job in {folder} did not take a savepoint within {timeout_s:.0f} s, so the "
                        "request was withdrawn. --timeout sets how long to wait."
                    )
                progress.show(f"waiting for the savepoint ... {waited:.0f} s")
                time.sleep(_POLL_S)
        finally:
            withdraw(folder, order_id)
    if "error" in answer:
        raise SavepointError(answer["error"])
    return answer["path"]
