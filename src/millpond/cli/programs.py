"""Runs a Python program in this process, with settings handed over."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from millpond.cli.exit_codes import UsageError

SETTINGS_VARIABLE = "MILLPOND_SETTINGS"
# Keys of common/options.py, named here because importing that takes longer than most commands.
MASTER_KEY = "millpond.master"
PARALLELISM_KEY = "parallelism.default"
PYTHON_FILES_KEY = "python.files"
SAVEPOINT_KEY = "execution.state-recovery.path"
ALLOW_NON_RESTORED_KEY = "execution.state-recovery.ignore-unclaimed-state"


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", help="Spark master: local[*], spark://HOST:PORT, yarn, k8s://..."
    )
    parser.add_argument("-p", "--parallelism", type=int, help="default parallelism of operators")
    parser.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, Millpond's or Spark's (spark....); can be given several times",
    )
    parser.add_argument(
        "--py-files",
        metavar="FILES",
        help="modules, folders or zips that the program and workers import, with commas",
    )


def add_restore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s",
        "--from-savepoint",
        metavar="PATH",
        help="savepoint to start from, if the job's folder is new",
    )
    parser.add_argument(
        "-n",
        "--allow-non-restored-state",
        action="store_true",
        help="start although the savepoint has state that the program does not claim",
    )


def add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", help="the Python file, or a zip or folder with __main__.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments for the program")


def parse_settings(given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"-D needs KEY=VALUE, not '{setting}'")
        settings[key] = value
    return settings


def settings_of(parsed: argparse.Namespace) -> dict[str, str]:
    """What the environment says, then -D, then the options of their own."""
    settings: dict[str, str] = json.loads(os.environ.get(SETTINGS_VARIABLE, "{}"))
    settings.update(parse_settings(parsed.settings))
    if parsed.master:
        settings[MASTER_KEY] = parsed.master
    if parsed.parallelism is not None:
        if parsed.parallelism < 1:
            raise UsageError(f"-p must be at least 1, not {parsed.parallelism}")
        settings[PARALLELISM_KEY] = str(parsed.parallelism)
    if getattr(parsed, "from_savepoint", None):
        settings[SAVEPOINT_KEY] = absolute(parsed.from_savepoint)
    if getattr(parsed, "allow_non_restored_state", False):
        settings[ALLOW_NON_RESTORED_KEY] = "true"
    return settings


def python_files(parsed: argparse.Namespace) -> list[Path]:
    files = [Path(part.strip()) for part in (parsed.py_files or "").split(",") if part.strip()]
    for file in files:
        if not file.exists():
            raise UsageError(f"--py-files: there is no {file}")
    return [file.absolute() for file in files]


def check_program(program: str) -> Path:
    if not os.path.exists(program):
        raise UsageError(f"there is no program {program}")
    return Path(program)


def absolute(path: str) -> str:
    """For a process that works in another folder. What has a scheme is left as it is."""
    return path if "://" in path else os.path.abspath(path)


def run_here(
    program: str, arguments: Sequence[str], settings: dict[str, str], py_files: Sequence[Path]
) -> None:
    """As `python PROGRAM ARGUMENTS` would."""
    if py_files:
        given = [own for own in (settings.get(PYTHON_FILES_KEY),) if own]
        settings = {**settings, PYTHON_FILES_KEY: ",".join([*given, *map(str, py_files)])}
    os.environ[SETTINGS_VARIABLE] = json.dumps(settings)
    sys.argv = [program, *arguments]
    for file in py_files:
        sys.path.insert(0, str(file.parent if file.suffix == ".py" else file))
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    runpy.run_path(program, run_name="__main__")
