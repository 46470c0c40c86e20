"""`millpond info`: shows the plan of a job, or of a program without starting its job."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import find_known_job
from millpond.cli.commands import Commands
from millpond.cli.exit_codes import UsageError
from millpond.cli.programs import (
    add_setting_options,
    check_program,
    python_files,
    run_here,
    settings_of,
)
from millpond.cli.texts import duration_text, table_text, time_text
from millpond.errors import ProgramError


def add_commands(commands: Commands) -> None:
    """Add `info`."""
    info = commands.add_parser(
        "info",
        help="show the plan of a job or of a program",
        description="Show the plan of a dispatcher's job, with its state and record counts; or the plan of a "
        "program, which runs up to its first execute() and starts no job.",
    )
    info.add_argument(
        "job",
        metavar="JOB|PROGRAM",
        help="id (or the beginning of it) or name of a job; or a .py or .zip file or a folder with "
        "__main__.py",
    )
    info.add_argument(
        "arguments",
        nargs="*",
        help="arguments for the program; put -- before those that begin with -",
    )
    info.add_argument("--json", action="store_true", help="print JSON")
    add_setting_options(info)
    add_connection_options(info)
    info.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    given = Path(parsed.job)
    is_program = given.suffix in (".py", ".zip") or (given / "__main__.py").exists()
    if is_program:
        return _of_program(parsed)
    if parsed.arguments:
        raise UsageError(f"'{parsed.job}' is not a program, so it takes no arguments")
    return _of_job(parsed)


# --- programs ----------------------------------------------------------------------------------------


def _of_program(parsed: argparse.Namespace) -> int:
    from millpond.plan.preview import plan_only

    program = check_program(parsed.job)
    settings = settings_of(parsed)
    # Standard output is for the plan alone.
    with contextlib.redirect_stdout(sys.stderr), plan_only() as preview:
        run_here(str(program), parsed.arguments, settings, python_files(parsed))
    if preview.plan is None:
        raise ProgramError(
            f"{program} ended without calling execute() or execute_async(), so there is no plan."
        )
    for note in preview.notes:
        print(f"millpond: {note}", file=sys.stderr)
    print(json.dumps({"plan": preview.plan}, indent=1) if parsed.json else preview.drawing)
    return 0


# --- jobs --------------------------------------------------------------------------------------------


def _of_job(parsed: argparse.Namespace) -> int:
    with connect(parsed) as client:
        jid = find_known_job(client, parsed.job)["jid"]
        job = client.get(f"/jobs/{jid}")
        plan = client.get(f"/jobs/{jid}/plan")["plan"]
    if parsed.json:
        print(json.dumps({"job": job, "plan": plan}, indent=1))
        return 0
    print(f"job       {job['name']} ({jid})")
    ended_ms = job.get("end-time", -1)
    until = f" to {time_text(ended_ms)}" if ended_ms > 0 else ""
    print(f"state     {job['state']}, for {duration_text(job['duration'])}")
    print(f"started   {time_text(job['start-time'])}{until}")
    print(f"\n{_vertices(job, plan)}")
    return 0


def _vertices(job: dict[str, Any], plan: dict[str, Any]) -> str:
    nodes = {node["id"]: node for node in plan["nodes"]}
    numbers = {vertex["id"]: number for number, vertex in enumerate(job["vertices"], 1)}
    rows = []
    for vertex in job["vertices"]:
        inputs = nodes.get(vertex["id"], {}).get("inputs", [])
        origins = ", ".join(
            f"{numbers.get(edge['id'], '?')} {edge['ship_strategy']}" for edge in inputs
        )
        metrics = vertex.get("metrics", {})
        rows.append(
            [
                str(numbers[vertex["id"]]),
                vertex["status"],
                str(vertex["parallelism"]),
                f"{int(metrics.get('read-records') or 0):,}",
                f"{int(metrics.get('write-records') or 0):,}",
                origins or "-",
                vertex["name"],
            ]
        )
    return table_text(["#", "STATUS", "TASKS", "READ", "WRITTEN", "INPUT", "NAME"], rows)
