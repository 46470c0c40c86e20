"""`millpond dashboard`: prints the link that opens the dashboard."""

from __future__ import annotations

import argparse
import json
from urllib.parse import quote

from millpond.cli.client.connection import Target, add_connection_options, read_token, target_of
from millpond.cli.commands import Commands


def add_commands(commands: Commands) -> None:
    """Add `dashboard`."""
    dashboard = commands.add_parser(
        "dashboard",
        help="print the link that opens the dashboard",
        description="Print the address of the dashboard together with the token, so that the browser does "
        "not ask for it. Anyone who has the link can use the cluster.",
    )
    dashboard.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(dashboard)
    dashboard.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    link = dashboard_link(target_of(parsed))
    print(json.dumps({"link": link}) if parsed.json else link)
    return 0


def dashboard_link(target: Target) -> str:
    """Return the URL that opens the dashboard, with the token if there is one.

    The token stands after `#`: browsers do not send that part, and the page removes it from the address."""
    token = read_token(target.token_file)
    address = target.addresses[0].rstrip("/")
    return f"{address}/" if token is None else f"{address}/#token={quote(token, safe='')}"
