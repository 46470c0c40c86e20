"""`millpond stop-cluster`: ends what `start-cluster` has started."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millpond.cli.cluster.processes import Ending, end, identify
from millpond.cli.cluster.record import (
    ClusterProcess,
    ClusterRecord,
    cluster_folder,
    locked,
    read_cluster,
    remove_cluster,
)
from millpond.cli.progress import Progress
from millpond.errors import ClusterError

# Dispatchers first: they would start anew what goes next. Jobs before what they run on: they would take its
# loss for a failure.
_ORDER = ("dispatcher", "job", "worker", "master")


def add_commands(commands: Any) -> None:
    stop = commands.add_parser(
        "stop-cluster",
        help="end what start-cluster has started",
        description="End dispatcher, jobs, workers and master, in this order. Jobs are not lost: when "
        "the cluster is started again in the same folder, they go on from their newest checkpoints.",
    )
    stop.add_argument(
        "--dir", metavar="DIR", help="the cluster's folder (default: $MILLPOND_HOME or ~/.millpond)"
    )
    stop.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="S",
        help="a process that has not ended after so long is killed (30 s)",
    )
    stop.add_argument("--json", action="store_true", help="print JSON")
    stop.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    folder = cluster_folder(parsed.dir)
    nothing = f"No cluster runs in {folder}. Another folder can be named with --dir."
    if not folder.is_dir():
        raise ClusterError(nothing)
    with locked(folder):
        record = read_cluster(folder)
        if record is None:
            raise ClusterError(nothing)
        if not record.is_here():
            raise ClusterError(f"The cluster of {folder} runs on {record.machine}; stop it there.")
        jobs = len(job_processes(Path(record.storage)))
        with Progress() as progress:
            ended = list(end_cluster(record, parsed.grace, progress))
        remove_cluster(folder)
    _tell(ended, jobs, parsed.json)
    return 0


def end_cluster(
    record: ClusterRecord, grace_s: float, progress: Progress
) -> Iterator[tuple[ClusterProcess, Ending]]:
    """In the right order, each waited for. Without ZooKeeper a dispatcher ends its jobs' processes itself;
    with it, it leaves them to another one."""
    for role in _ORDER:
        processes = job_processes(Path(record.storage)) if role == "job" else record.of(role)
        for process in processes:
            progress.show(f"ending {process.title} ...")
            yield process, end(process.identity, grace_s)


def job_processes(storage: Path) -> list[ClusterProcess]:
    """The jobs' processes on this machine, as their reports name them. A process that has the id by now but
    nothing to do with the job is not among them."""
    found = []
    for number, report in enumerate(sorted(storage.glob("jobs/*/report.json")), 1):
        try:
            content = json.loads(report.read_text())
            pid, host = int(content["pid"]), content["host"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        process = identify(pid)
        if process is None or host != platform.node() or not _is_about(pid, report.parent.name):
            continue
        found.append(
            ClusterProcess(
                "job", number, pid, process.started, process.boot, str(report.parent / "log")
            )
        )
    return found


def _is_about(pid: int, jid: str) -> bool:
    """Whether a process has the job's id on its command line."""
    try:
        return jid.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _tell(ended: list[tuple[ClusterProcess, Ending]], jobs: int, as_json: bool) -> None:
    if as_json:
        entries = [
            {"role": own.role, "number": own.number, "pid": own.pid, "ended": how.name.lower()}
            for own, how in ended
        ]
        print(json.dumps({"ended": entries, "jobs": jobs}, indent=1))
    else:
        for process, how in ended:
            print(f"{process.title:<14} {how.value} (process {process.pid})")
    if jobs:
        print(
            f"{jobs} job{'s' if jobs > 1 else ''} can go on, from the newest checkpoint, when the "
            "cluster is started again in the same folder.",
            file=sys.stderr,
        )
