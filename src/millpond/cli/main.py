"""The `millpond` command."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections.abc import Sequence

from millpond import __version__
from millpond.cli import capping, checkpoints, savepoints
from millpond.common import options
from millpond.errors import MillpondError

SETTINGS_VARIABLE = "MILLPOND_SETTINGS"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millpond", description="Stateful stream processing in Python, on Apache Spark."
    )
    parser.add_argument("--version", action="version", version=f"millpond {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a program",
        description="Run a Python program that uses Millpond, with settings given here.",
    )
    run.add_argument("--master", help="Spark master: local[*], spark://HOST:PORT, yarn, k8s://...")
    run.add_argument("-p", "--parallelism", type=int, help="default parallelism of operators")
    run.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, Millpond's or Spark's (spark....); can be given several times",
    )
    run.add_argument(
        "-s",
        "--from-savepoint",
        metavar="PATH",
        help="savepoint to start from, if the job's folder is new",
    )
    run.add_argument(
        "-n",
        "--allow-non-restored-state",
        action="store_true",
        help="start although the savepoint has state that the program does not claim",
    )
    run.add_argument("program", help="the Python file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments for the program")
    commands.add_parser(
        "prepare",
        help="make Spark start faster on this machine (once, about a minute)",
        description="Archive the Java classes Spark needs, so that it starts about a third faster.",
    )
    savepoints.add_commands(commands)
    checkpoints.add_commands(commands)
    capping.add_commands(commands)
    commands.add_parser("settings", help="list the settings, their defaults and meanings")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = build_parser().parse_args(arguments)
    try:
        if parsed.command == "run":
            return _run(parsed)
        if parsed.command == "prepare":
            return _prepare()
        if parsed.command == "savepoint":
            return savepoints.run_savepoint(parsed)
        if parsed.command == "checkpoint":
            return checkpoints.run_checkpoint(parsed)
        if parsed.command == "capping":
            return capping.run_capping(parsed)
        if parsed.command == "stop":
            return savepoints.run_stop(parsed)
        for option in options.ALL:
            print(f"{option.key}\n    default {option.default}: {option.meaning}")
        return 0
    except MillpondError as problem:
        print(f"millpond: {problem}", file=sys.stderr)
        return 1


def _run(parsed: argparse.Namespace) -> int:
    settings: dict[str, str] = json.loads(os.environ.get(SETTINGS_VARIABLE, "{}"))
    for setting in parsed.settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            print(f"millpond: -D needs KEY=VALUE, not '{setting}'", file=sys.stderr)
            return 2
        settings[key] = value
    if parsed.master:
        settings[options.MASTER.key] = parsed.master
    if parsed.parallelism:
        settings[options.PARALLELISM.key] = str(parsed.parallelism)
    if parsed.from_savepoint:
        settings[options.SAVEPOINT_PATH.key] = os.path.abspath(parsed.from_savepoint)
    if parsed.allow_non_restored_state:
        settings[options.ALLOW_NON_RESTORED.key] = "true"
    if not os.path.exists(parsed.program):
        print(f"millpond: there is no program {parsed.program}", file=sys.stderr)
        return 2
    os.environ[SETTINGS_VARIABLE] = json.dumps(settings)
    sys.argv = [parsed.program, *parsed.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(parsed.program)))
    runpy.run_path(parsed.program, run_name="__main__")
    return 0


def _prepare() -> int:
    from millpond.runtime.spark.class_archive import make_archive
    from millpond.runtime.spark.session import JAVA_OPTIONS

    print("Archiving Spark's Java classes (once, about a minute) ...", flush=True)
    path = make_archive(JAVA_OPTIONS)
    print(f"Done: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
