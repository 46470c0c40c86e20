"""`millpond settings` and `millpond prepare`: about this installation, not about jobs."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_commands(commands: Any) -> None:
    prepare = commands.add_parser(
        "prepare",
        help="make Spark start faster on this machine (once, about a minute)",
        description="Archive the Java classes Spark needs, so that it starts about a third faster.",
    )
    prepare.add_argument("--json", action="store_true", help="print JSON")
    prepare.set_defaults(call=_prepare)
    settings = commands.add_parser(
        "settings", help="list the settings, their defaults and meanings"
    )
    settings.add_argument("--json", action="store_true", help="print JSON")
    settings.set_defaults(call=_settings)


def _settings(parsed: argparse.Namespace) -> int:
    from millpond.common import options

    if parsed.json:
        entries = [
            {"key": own.key, "default": own.default, "meaning": own.meaning} for own in options.ALL
        ]
        print(json.dumps(entries, indent=1))
        return 0
    for option in options.ALL:
        print(f"{option.key}\n    default {option.default}: {option.meaning}")
    return 0


def _prepare(parsed: argparse.Namespace) -> int:
    from millpond.executors.spark.class_archive import make_archive
    from millpond.executors.spark.session import JAVA_OPTIONS

    if not parsed.json:
        print("Archiving Spark's Java classes (once, about a minute) ...", flush=True)
    path = make_archive(JAVA_OPTIONS)
    print(json.dumps({"archive": str(path)}) if parsed.json else f"Done: {path}")
    return 0
