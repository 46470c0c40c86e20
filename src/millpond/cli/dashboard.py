"""`millpond dashboard`: the link that opens the dashboard."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from millpond.cli.client.connection import Target, add_connection_options, read_token, target_of


def add_commands(commands: Any) -> None:
    dashboard = commands.add_parser(
        "dashboard",
        help="print the link that opens the dashboard",
        description="Print the dashboard's address with the token, so that the browser need not ask for it. "
        "Whoever has the link can use the cluster.",
    )
    dashboard.add_argument("--json", action="store_true", help="print JSON")
    add_connection_options(dashboard)
    dashboard.set_defaults(call=_run)


def _run(parsed: argparse.Namespace) -> int:
    link = dashboard_link(target_of(parsed))
    print(json.dumps({"link": link}) if parsed.json else link)
    return 0


def dashboard_link(target: Target) -> str:
    """The token is behind #: browsers send that part to nobody, and the page takes it out of the address."""
    token = read_token(target.token_file)
    address = target.addresses[0].rstrip("/")
    return f"{address}/" if token is None else f"{address}/#token={quote(token, safe='')}"
