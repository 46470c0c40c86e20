"""`millpond state query`: one value of a running job's state."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import find_living_job


def add_commands(commands: Any) -> None:
    state = commands.add_parser("state", help="look up state of a running job")
    actions = state.add_subparsers(dest="state_action", required=True, metavar="ACTION")
    query = actions.add_parser(
        "query",
        help="the value of a key",
        description="The value that a key has in a state which the program made queryable, as of the last "
        "committed batch. A key that has none prints nothing.",
    )
    query.add_argument("job", metavar="JOB", help="the job's id, the beginning of it, or its name")
    query.add_argument("name", metavar="NAME", help="as given to set_queryable")
    query.add_argument("key", metavar="KEY")
    query.add_argument("--entry", metavar="E", help="of a map state: this entry only")
    query.add_argument("--json", action="store_true", help="print JSON: found, value")
    add_connection_options(query)
    query.set_defaults(call=_query)


def _query(parsed: argparse.Namespace) -> int:
    with connect(parsed) as client:
        job = find_living_job(client, parsed.job)
        path = (
            f"/jobs/{job['jid']}/state/{quote(parsed.name, safe='')}/{quote(parsed.key, safe='')}"
        )
        answer = client.get(path, None if parsed.entry is None else {"entry": parsed.entry})
    if parsed.json:
        print(json.dumps({"found": bool(answer["found"]), "value": answer.get("value")}))
    elif not answer["found"]:
        what = f"key {parsed.key}" if parsed.entry is None else f"{parsed.entry} of {parsed.key}"
        print(f"millpond: {parsed.name} has no value for {what}", file=sys.stderr)
    else:
        value = answer["value"]
        print(value if isinstance(value, str) else json.dumps(value))
    return 0
