"""Options about programs and their settings, and how a program runs in this process."""

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
# Keys of common/options.py, repeated here because importing that module takes longer than most commands.
MASTER_KEY = "millpond.master"
PARALLELISM_KEY = "parallelism.default"
PYTHON_FILES_KEY = "python.files"
SAVEPOINT_KEY = "execution.state-recovery.path"
ALLOW_NON_RESTORED_KEY = "execution.state-recovery.ignore-unclaimed-state"


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `settings_of` and `python_files` read."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark master: local[*], spark://HOST:PORT, yarn, k8s://...",
    )
    parser.add_argument(
        "-p",
        "--parallelism",
        type=int,
        metavar="N",
        help="default parallelism of operators: their number of subtasks",
    )
    parser.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Millpond (see `millpond settings`) or Spark (spark.*); can be repeated",
    )
    parser.add_argument(
        "--py-files",
        metavar="FILES",
        help="modules, folders or zips, separated by commas, that the program and the workers can import",
    )


def add_restore_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about the savepoint to start from, which `settings_of` reads."""
    parser.add_argument(
        "-s",
        "--from-savepoint",
        metavar="PATH",
        help="savepoint to start from; used only if the job folder is new",
    )
    parser.add_argument(
        "-n",
        "--allow-non-restored-state",
        action="store_true",
        help="start even if the savepoint has state that the program does not use",
    )


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the program and its arguments. Call this last: they take all that follows."""
    parser.add_argument("program", help="a Python file, or a zip or folder with __main__.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments for the program")


def parse_settings(given: Sequence[str]) -> dict[str, str]:
    """Return the values of -D options by key. Raise UsageError if one is not KEY=VALUE."""
    settings = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"-D needs KEY=VALUE, not '{setting}'")
        settings[key] = value
    return settings


def settings_of(parsed: argparse.Namespace) -> dict[str, str]:
    """Return the settings for the program. Options such as --master override -D, which overrides those of the
    environment variable MILLPOND_SETTINGS. Raise UsageError for values that cannot be."""
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
    """Return the absolute paths that --py-files names. Raise UsageError if one does not exist."""
    files = [Path(part.strip()) for part in (parsed.py_files or "").split(",") if part.strip()]
    for file in files:
        if not file.exists():
            raise UsageError(f"--py-files: there is no file or folder {file}")
    return [file.absolute() for file in files]


def with_python_files(settings: dict[str, str], py_files: Sequence[Path]) -> dict[str, str]:
    """Return the settings with these files added to those that python.files names."""
    if not py_files:
        return settings
    files = [settings.get(PYTHON_FILES_KEY), *map(str, py_files)]
    return {**settings, PYTHON_FILES_KEY: ",".join(file for file in files if file)}


def check_program(program: str) -> Path:
    """Return the path of a program. Raise UsageError if there is nothing there."""
    if not os.path.exists(program):
        raise UsageError(f"there is no program {program}")
    return Path(program)


def absolute(path: str) -> str:
    """Return an absolute path, which means the same in a process with another working folder. A URL is
    returned unchanged."""
    return path if "://" in path else os.path.abspath(path)


def run_here(
    program: str, arguments: Sequence[str], settings: dict[str, str], py_files: Sequence[Path]
) -> None:
    """Run a program in this process, as `python PROGRAM ARGUMENTS` would. The settings reach it through the
    environment variable MILLPOND_SETTINGS."""
    os.environ[SETTINGS_VARIABLE] = json.dumps(with_python_files(settings, py_files))
    sys.argv = [program, *arguments]
    for file in py_files:
        sys.path.insert(0, str(file.parent if file.suffix == ".py" else file))
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    runpy.run_path(program, run_name="__main__")
