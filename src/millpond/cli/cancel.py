"""`millpond cancel JOB`: ends a job without a savepoint."""

from __future__ import annotations

import argparse
import json
from typing import Any

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import find_living_job, wait_for_end
from millpond.cli.exit_codes import ExitCode
from millpond.cli.progress import Progress


def add_commands(commands: Any) -> None:
    cancel = commands.add_parser(
        "cancel",
        help="end a job of a dispatcher, without a savepoint",
        description="End a job. What it has written stays; `millpond stop` takes a savepoint before.",
    )
    cancel.add_argument("job", metavar="JOB", help="the job's id, the beginning of it, or its name")
    cancel.add_argument("--no-wait", action="store_true", help="do not wait until it has ended")
    cancel.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="how long to wait (120 s)"
    )
    cancel.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(cancel)
    cancel.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    with connect(parsed) as client, Progress() as progress:
        job = find_living_job(client, parsed.job)
        client.patch(f"/jobs/{job['jid']}", {"mode": "cancel"})
        state = "CANCELLING"
        if not parsed.no_wait:
            state = wait_for_end(client, job["jid"], parsed.timeout, progress)
    if parsed.json:
        print(json.dumps({"jid": job["jid"], "name": job["name"], "state": state}))
    else:
        print(f"{job['name']} ({job['jid']}): {state}")
    return ExitCode.OK if state in ("CANCELED", "CANCELLING") else ExitCode.FAILED
