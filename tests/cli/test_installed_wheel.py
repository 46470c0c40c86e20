"""The command as users get it: from a wheel, each call in a process of its own, far from the sources (O8)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LIST_COMMANDS = """
import argparse, json
from millpond.cli.main import build_parser

def walk(parser, path):
    children = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    yield path
    for action in children:
        for name, child in action.choices.items():
            yield from walk(child, [*path, name])

print(json.dumps(list(walk(build_parser(), []))))
"""
MAKE_SAVEPOINT = """
import sys
from millpond.common import Types
from millpond.datastream.state import ValueStateDescriptor
from millpond.savepoint import Savepoint

views = ValueStateDescriptor("views", Types.INT())
Savepoint.new().with_state("count", views, {"ann": 3, "bob": 1}).write(sys.argv[1])
"""
PROGRAM = """
from millpond.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([1, 2, 3]).map(lambda number: number + 1).print()
env.execute("numbers")
"""
NO_DISPATCHER = 3
WRONG_USAGE = 2


class Installed:
    """A virtual environment that has Millpond from a wheel, and its dependencies from this one."""

    def __init__(self, base: Path) -> None:
        self._base = base
        sources = base / "sources"
        shutil.copytree(ROOT / "src" / "millpond", sources / "src" / "millpond")
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, sources)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        wheels = base / "wheels"
        self._call([*pip, "wheel", "--quiet", "--no-deps", "-w", wheels, sources], check=True)
        (wheel,) = wheels.glob("millpond-*.whl")
        environment = base / "environment"
        self._call([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        self.python = environment / "bin" / "python"
        install = [*pip, "--python", self.python, "install", "--quiet", "--no-deps", "--no-index"]
        self._call([*install, wheel], check=True)
        (site_packages,) = (environment / "lib").glob("python*/site-packages")
        (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        self._command = environment / "bin" / "millpond"

    def millpond(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self._call([self._command, *arguments])

    def run_python(self, code: str, *arguments: str | Path) -> str:
        return self._call([self.python, "-c", code, *arguments], check=True).stdout

    def _call(
        self, command: Sequence[str | Path], check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        home = self._base / "home"
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            cwd=home,
            env={**kept, "HOME": str(home), "LANG": "C.UTF-8"}
            | {name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def savepoint(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("savepoints") / "first"
    installed.run_python(MAKE_SAVEPOINT, path)
    return path


def test_wheel_has_what_is_imported(installed: Installed) -> None:
    where = installed.run_python("import millpond; print(millpond.__file__)").strip()
    assert Path(where).is_relative_to(installed.python.parent.parent)


def test_every_command_and_subcommand_shows_its_help(installed: Installed) -> None:
    commands = json.loads(installed.run_python(LIST_COMMANDS))
    assert [] in commands and ["savepoint"] in commands and ["capping", "run"] in commands
    for command in commands:
        done = installed.millpond(*command, "--help")
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.startswith(f"usage: {' '.join(['millpond', *command])}")
        assert done.stderr == ""


def test_savepoints_are_listed_shown_and_disposed_of(installed: Installed, savepoint: Path) -> None:
    """From an installed wheel this ended in an ImportError once."""
    listed = installed.millpond("savepoint", "list", savepoint.parent)
    assert (listed.returncode, listed.stderr) == (0, "") and "first" in listed.stdout
    shown = installed.millpond("savepoint", "show", savepoint)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "views  (value:" in shown.stdout and "2 keys" in shown.stdout
    disposed = installed.millpond("savepoint", "dispose", savepoint)
    assert (disposed.returncode, disposed.stderr) == (0, "")
    assert not savepoint.exists()
    again = installed.millpond("savepoint", "show", savepoint)
    assert again.returncode == 1 and str(savepoint) in again.stderr
    assert "Traceback" not in again.stderr


def test_plan_of_a_program_is_shown(installed: Installed, tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    shown = installed.millpond("info", program)
    assert shown.returncode == 0, shown.stderr
    assert "Collection Source" in shown.stdout


def test_settings_and_completion_are_printed(installed: Installed) -> None:
    settings = installed.millpond("settings")
    assert settings.returncode == 0 and "state.backend.type" in settings.stdout
    for shell in ("bash", "zsh"):
        completion = installed.millpond("completion", shell)
        assert completion.returncode == 0 and "start-cluster" in completion.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["cancel", "job"],
        ["stop", "job"],
        ["logs", "job"],
        ["info", "job"],
        ["savepoint", "job"],
        ["checkpoint", "job"],
        ["state", "query", "job", "state", "key"],
    ],
    ids=" ".join,
)
def test_command_without_a_dispatcher_says_so(installed: Installed, arguments: list[str]) -> None:
    done = installed.millpond(*arguments)
    assert done.returncode == NO_DISPATCHER, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and "start-cluster" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["savepoint"], ["capping"]], ids=str)
def test_wrong_usage_is_explained(installed: Installed, arguments: list[str]) -> None:
    done = installed.millpond(*arguments)
    assert done.returncode == WRONG_USAGE and "usage:" in done.stderr
