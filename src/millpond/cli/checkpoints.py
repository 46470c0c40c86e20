"""`millpond checkpoint JOB`: the newest checkpoints of a job, running or not."""

from __future__ import annotations

import argparse
import json
from typing import Any

from millpond.cli.jobs import find_job
from millpond.cli.texts import size_text, time_text
from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind


def add_commands(commands: Any) -> None:
    checkpoint = commands.add_parser(
        "checkpoint",
        help="list the newest checkpoints of a job",
        description="The newest checkpoints of a job: when, how long, how large. Every batch is one.",
    )
    checkpoint.add_argument("job", metavar="JOB", help="the job's folder, or its name")
    checkpoint.add_argument("--checkpoint-dir", metavar="DIR", help="if JOB is a name")
    checkpoint.add_argument("--json", action="store_true", help="print JSON")


def run_checkpoint(parsed: argparse.Namespace) -> int:
    folder = find_job(parsed.job, parsed.checkpoint_dir)
    paths = sorted((folder / "epochs").glob("*.epoch"), key=lambda path: int(path.stem))
    records = [
        codec.decode(BlobKind.EPOCH, path.read_bytes(), str(path))["checkpoint"] for path in paths
    ]
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
