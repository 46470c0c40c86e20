"""`millpond settings` and `millpond prepare`, which concern the installation and not a job."""

from __future__ import annotations

import argparse
import json

from millpond.cli.commands import Commands


def add_commands(commands: Commands) -> None:
    """Add `prepare` and `settings`."""
    prepare = commands.add_parser(
        "prepare",
        help="make Spark start faster on this machine (needed once; takes about a minute)",
        description="Archive the Java classes that Spark loads, so that Spark starts about a third faster.",
    )
    prepare.add_argument("--json", action="store_true", help="print JSON")
    prepare.set_defaults(call=_prepare)
    settings = commands.add_parser(
        "settings",
        help="list all settings with their defaults and meanings",
        description="List all settings with their defaults and meanings. Set them with -D KEY=VALUE, or in "
        "the program's Configuration.",
    )
    settings.add_argument("--json", action="store_true", help="print JSON")
    settings.set_defaults(call=_settings)


def _settings(parsed: argparse.Namespace) -> int:
    from millpond.common import options

    if parsed.json:
        entries = [
            {"key": option.key, "default": option.default, "meaning": option.meaning}
            for option in options.ALL
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
        print("Archiving Spark's Java classes; this takes about a minute ...", flush=True)
    path = make_archive(JAVA_OPTIONS)
    print(json.dumps({"archive": str(path)}) if parsed.json else f"Done: {path}")
    return 0
