"""`millpond cancel`: ends a job without a savepoint."""

from __future__ import annotations

import argparse
import json

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import JOB_HELP, find_living_job, wait_for_end
from millpond.cli.commands import Commands
from millpond.cli.exit_codes import ExitCode
from millpond.cli.progress import Progress


def add_commands(commands: Commands) -> None:
    """Add `cancel`."""
    cancel = commands.add_parser(
        "cancel",
        help="end a running job without a savepoint",
        description="End a running job without a savepoint. Its committed output stays. To take a savepoint "
        "first, use `millpond stop`.",
    )
    cancel.add_argument("job", metavar="JOB", help=JOB_HELP)
    cancel.add_argument(
        "--no-wait", action="store_true", help="return at once; do not wait for the job to end"
    )
    cancel.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds to wait for the job to end (default: 120)",
    )
    cancel.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(cancel)
    cancel.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    from millpond.common.job import JobStatus

    with connect(parsed) as client, Progress() as progress:
        job = find_living_job(client, parsed.job)
        client.patch(f"/jobs/{job['jid']}", {"mode": "cancel"})
        status = JobStatus.CANCELLING
        if not parsed.no_wait:
            status = wait_for_end(client, job["jid"], parsed.timeout, progress)
    if parsed.json:
        print(json.dumps({"jid": job["jid"], "name": job["name"], "state": status.name}))
    else:
        print(f"{job['name']} ({job['jid']}): {status.name}")
    return ExitCode.OK if status in (JobStatus.CANCELED, JobStatus.CANCELLING) else ExitCode.FAILED
