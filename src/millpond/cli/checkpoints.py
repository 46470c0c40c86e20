"""`millpond checkpoint`: lists the newest checkpoints of a job, running or not."""

from __future__ import annotations

import argparse
import json
from collections import deque
from typing import Any

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import find_known_job
from millpond.cli.commands import Commands
from millpond.cli.job_folders import JOB_OR_FOLDER_HELP, find_job, is_job_folder
from millpond.cli.texts import size_text, time_text
from millpond.core.storage import FileStorage

_SHOWN = 20


def add_commands(commands: Commands) -> None:
    """Add `checkpoint`."""
    checkpoint = commands.add_parser(
        "checkpoint",
        help="list the newest checkpoints of a job",
        description="List the newest checkpoints of a job, running or not: when each was taken, how long it "
        "took and how large it is. Every batch is a checkpoint.",
    )
    checkpoint.add_argument("job", metavar="JOB", help=JOB_OR_FOLDER_HELP)
    checkpoint.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help="look for the folder of the job named JOB here, without a dispatcher "
        "(the job's execution.checkpointing.dir)",
    )
    checkpoint.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(checkpoint)
    checkpoint.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    if is_job_folder(parsed.job, parsed.checkpoint_dir):
        records = _of_folder(parsed.job, parsed.checkpoint_dir)
    else:
        with connect(parsed) as client:
            jid = find_known_job(client, parsed.job)["jid"]
            records = client.get(f"/jobs/{jid}/report")["checkpoints"]["history"]
    if parsed.json:
        print(json.dumps(records, indent=1))
        return 0
    print(f"{'id':>8}  {'started':19}  {'duration':>9}  {'written':>9}  {'full':>9}")
    for record in records:
        savepoint = "  savepoint" if record["is_savepoint"] else ""
        print(
            f"{record['id']:>8}  {time_text(record['started_ms'])}  {record['duration_ms']:>6} ms  "
            f"{size_text(record['bytes_written']):>9}  {size_text(record['bytes_full']):>9}{savepoint}"
        )
    return 0


def _of_folder(job: str, checkpoint_dir: str | None) -> list[dict[str, Any]]:
    from millpond.driver.epochs.epoch_log import epoch_records

    records = deque(epoch_records(FileStorage(find_job(job, checkpoint_dir))), _SHOWN)
    return [record.checkpoint.to_dict() for record in records]
