"""`millpond stop-cluster`: ends what `start-cluster` has started."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from millpond.cli.cluster.processes import Ending, end, identify
from millpond.cli.cluster.record import (
    CLUSTER_FOLDER_HELP,
    ClusterProcess,
    ClusterRecord,
    cluster_folder,
    locked,
    read_cluster,
    remove_cluster,
)
from millpond.cli.commands import Commands
from millpond.cli.progress import Progress
from millpond.errors import ClusterError

# Dispatchers first: they would restart the jobs. Jobs before Spark: they would take its loss for a failure.
_ORDER = ("dispatcher", "job", "worker", "master")


def add_commands(commands: Commands) -> None:
    """Add `stop-cluster`."""
    stop = commands.add_parser(
        "stop-cluster",
        help="end what start-cluster has started",
        description="End the dispatchers, jobs, workers and master of a cluster, in this order. Jobs are not "
        "lost: when the cluster is started again in the same folder, they resume from their newest "
        "checkpoints.",
    )
    stop.add_argument("--dir", metavar="DIR", help=CLUSTER_FOLDER_HELP)
    stop.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds that each process has to end before it is killed (default: 30)",
    )
    stop.add_argument("--json", action="store_true", help="print JSON")
    stop.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    folder = cluster_folder(parsed.dir)
    no_cluster = f"There is no cluster in {folder}. Name another folder with --dir."
    if not folder.is_dir():
        raise ClusterError(no_cluster)
    with locked(folder):
        record = read_cluster(folder)
        if record is None:
            raise ClusterError(no_cluster)
        if not record.is_here():
            raise ClusterError(
                f"The cluster in {folder} runs on the machine {record.machine}; stop it there."
            )
        jobs = len(job_processes(Path(record.storage)))
        with Progress() as progress:
            ended = list(end_cluster(record, parsed.grace, progress))
        remove_cluster(folder)
    _print_result(ended, jobs, parsed.json)
    return 0


def end_cluster(
    record: ClusterRecord, grace_s: float, progress: Progress
) -> Iterator[tuple[ClusterProcess, Ending]]:
    """End the processes of a cluster one by one, in the right order, and yield each with how it ended.

    Jobs are among them: without ZooKeeper a dispatcher ends its jobs' processes itself, but with ZooKeeper it
    leaves them running for another dispatcher."""
    for role in _ORDER:
        processes = job_processes(Path(record.storage)) if role == "job" else record.of(role)
        for process in processes:
            progress.show(f"stopping {process.title} ...")
            yield process, end(process.identity, grace_s)


def job_processes(storage: Path) -> list[ClusterProcess]:
    """Return the job managers that run on this machine, found by the process ids in the reports of jobs. A
    process that has got such an id since, but belongs to no job, is left out."""
    processes = []
    for number, report in enumerate(sorted(storage.glob("jobs/*/report.json")), 1):
        try:
            content = json.loads(report.read_text())
            pid, host = int(content["pid"]), content["host"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        process = identify(pid)
        if process is None or host != platform.node() or not _is_about(pid, report.parent.name):
            continue
        processes.append(
            ClusterProcess(
                "job", number, pid, process.started, process.boot, str(report.parent / "log")
            )
        )
    return processes


def _is_about(pid: int, jid: str) -> bool:
    """Return True if a process has the job's id on its command line."""
    try:
        return jid.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _print_result(ended: list[tuple[ClusterProcess, Ending]], jobs: int, as_json: bool) -> None:
    if as_json:
        entries = [
            {
                "role": process.role,
                "number": process.number,
                "pid": process.pid,
                "ended": how.name.lower(),
            }
            for process, how in ended
        ]
        print(json.dumps({"ended": entries, "jobs": jobs}, indent=1))
    else:
        for process, how in ended:
            print(f"{process.title:<14} {how.value} (process {process.pid})")
    if jobs:
        print(
            f"{jobs} job{'s' if jobs > 1 else ''} will resume from the newest checkpoint when the cluster is "
            "started again in the same folder.",
            file=sys.stderr,
        )
