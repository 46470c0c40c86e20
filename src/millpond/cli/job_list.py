"""`millpond list`: lists the jobs of a dispatcher."""

from __future__ import annotations

import argparse
import json

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import has_ended, known_jobs
from millpond.cli.commands import Commands
from millpond.cli.texts import duration_text, table_text, time_text


def add_commands(commands: Commands) -> None:
    """Add `list`."""
    listing = commands.add_parser(
        "list",
        help="list the jobs of a dispatcher",
        description="List the running jobs of a dispatcher; with -a, also those that have ended.",
    )
    listing.add_argument("-a", "--all", action="store_true", help="also list jobs that have ended")
    listing.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(listing)
    listing.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    with connect(parsed) as client:
        jobs = known_jobs(client)
    shown = [job for job in jobs if parsed.all or not has_ended(job)]
    if parsed.json:
        print(json.dumps(shown, indent=1))
        return 0
    ended = len(jobs) - len(shown)
    if not shown:
        hint = f"; {ended} ended (millpond list -a)" if ended else ""
        print(f"no {'' if parsed.all else 'running '}jobs{hint}")
        return 0
    rows = [
        [
            job["jid"],
            job["state"],
            time_text(job["start-time"]),
            duration_text(job["duration"]),
            job["name"],
        ]
        for job in shown
    ]
    print(table_text(["JOB", "STATE", "STARTED", "DURATION", "NAME"], rows))
    return 0
