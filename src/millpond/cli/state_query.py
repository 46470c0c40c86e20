"""`millpond state query`: looks up one value of a running job's state."""

from __future__ import annotations

import argparse
import json
import sys
from urllib.parse import quote

from millpond.cli.client.connection import add_connection_options, connect
from millpond.cli.client.known_jobs import JOB_HELP, find_living_job
from millpond.cli.commands import Commands


def add_commands(commands: Commands) -> None:
    """Add `state`, with its only action, `query`."""
    state = commands.add_parser(
        "state",
        help="look up queryable state of a running job",
        description="Look up queryable state of a running job.",
    )
    actions = state.add_subparsers(dest="state_action", required=True, metavar="ACTION")
    query = actions.add_parser(
        "query",
        help="print the value of a key",
        description="Print the value of a key in a state that the program has made queryable, as of the last "
        "committed batch. If the key has no value, standard output stays empty.",
    )
    query.add_argument("job", metavar="JOB", help=JOB_HELP)
    query.add_argument(
        "name", metavar="NAME", help="name of the state, as the program gave it to set_queryable"
    )
    query.add_argument("key", metavar="KEY", help="the key to look up")
    query.add_argument(
        "--entry", metavar="E", help="for a map state: print only the entry with this key"
    )
    query.add_argument(
        "--json", action="store_true", help='print JSON: {"found": true or false, "value": ...}'
    )
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
        entry = "" if parsed.entry is None else f"entry {parsed.entry} of "
        print(f"millpond: {parsed.name} has no value for {entry}key {parsed.key}", file=sys.stderr)
    else:
        value = answer["value"]
        print(value if isinstance(value, str) else json.dumps(value))
    return 0
