"""Commands that packages add to `millpond`: found by their metadata, and unable to harm others (O8)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.cli.main import build_parser
from tests.cli.conftest import Command

Install = Callable[[str, str], None]
GOOD = """
def add(commands):
    parser = commands.add_parser("greet", help="says hello")
    parser.add_argument("--name", metavar="FILE")
    parser.set_defaults(call=lambda parsed: print("hello", parsed.name) or 7)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Lays a package with a plug-in `greet` where Python finds it, as pip does: (its code, its function)."""
    monkeypatch.syspath_prepend(tmp_path)

    def lay(code: str, function: str) -> None:
        (tmp_path / "greeter.py").write_text(code)
        about = tmp_path / "greeter-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[millpond.commands]\ngreet = {function}\n")
        monkeypatch.delitem(sys.modules, "greeter", raising=False)

    return lay


def test_command_of_a_package_is_one_of_ours(install: Install, millpond: Command) -> None:
    install(GOOD, "greeter:add")
    assert "says hello" in millpond("--help")[1]
    assert millpond("greet", "--name", "ann") == (7, "hello ann\n", "")
    code, out, _ = millpond("completion", "bash")
    assert code == 0 and "greet" in out


BROKEN = {
    "no module": ("", "nowhere:add", "No module named 'nowhere'"),
    "no function": ("", "greeter:add", "has no attribute 'add'"),
    "fails when imported": ("1 / 0", "greeter:add", "ZeroDivisionError"),
    "is no Python": ("def", "greeter:add", "SyntaxError"),
    "fails halfway": (GOOD + "    raise ValueError('halfway')\n", "greeter:add", "halfway"),
    "adds another command": (GOOD.replace('"greet"', '"list"'), "greeter:add", "it adds list"),
    "adds nothing": ("def add(commands): pass", "greeter:add", "it adds nothing"),
    "is no function": ("add = 5", "greeter:add", "TypeError"),
}


@pytest.mark.parametrize(("code", "function", "reason"), BROKEN.values(), ids=list(BROKEN))
def test_broken_plug_in_is_told_to_those_who_call_it_and_harms_nobody(
    install: Install, millpond: Command, code: str, function: str, reason: str
) -> None:
    install(code, function)
    for arguments in (["greet"], ["greet", "--name", "ann", "-x"], ["greet", "--help"]):
        exit_code, _, err = millpond(*arguments)
        assert exit_code == 1 and reason in err
        assert "'greet' comes from the package greeter" in err and "Traceback" not in err
    assert millpond("settings")[0] == 0
    assert millpond("capping", "--help")[0] == 0
    help_code, out, _ = millpond("--help")
    assert help_code == 0 and "(cannot be loaded)" in out and "list the jobs" in out
    assert millpond("completion", "zsh")[0] == 0


def test_plug_in_cannot_take_the_place_of_a_command(install: Install, millpond: Command) -> None:
    install(GOOD, "greeter:add")
    about = Path(sys.path[0]) / "greeter-1.0.dist-info" / "entry_points.txt"
    about.write_text("[millpond.commands]\nsettings = greeter:add\n")
    code, out, _ = millpond("settings", "--json")
    assert code == 0 and json.loads(out)
    assert millpond("--help")[0] == 0


def test_command_that_no_package_has_is_told_how_it_could_be_found(millpond: Command) -> None:
    code, _, err = millpond("nonsense", "--x")
    assert code == 2 and "no command 'nonsense'" in err and "pip install" in err


def modules_after(*arguments: str) -> set[str]:
    """Those that reading this command line has imported, in a process of its own."""
    show = (
        "import json, sys; from millpond.cli.main import build_parser;"
        f"build_parser({arguments!r}); print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_our_own_commands_do_not_look_for_plug_ins() -> None:
    found = modules_after("list")
    assert not {name for name in found if name.startswith("millpond.apps")}
    assert "importlib.metadata" not in found, "it looks into every package that is installed"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("capping", "run"), ("demo",)])
def test_reading_a_command_line_imports_the_options_of_plug_ins_alone(
    arguments: tuple[str, ...],
) -> None:
    found = {own for own in modules_after(*arguments) if own.startswith("millpond.apps.")}
    app = "millpond.apps.frequency_capping"
    assert found == {app, f"{app}.command", f"{app}.command.options"}


def test_completion_knows_the_options_of_plug_ins(millpond: Command) -> None:
    for shell in ("bash", "zsh"):
        code, out, _ = millpond("completion", shell)
        assert code == 0 and "--rules-grace" in out and "rebuild-redis" in out


def test_all_plug_ins_are_there_if_it_is_not_known_which_is_wanted() -> None:
    (commands,) = build_parser()._subparsers._group_actions  # type: ignore[union-attr]
    assert commands.choices is not None and {"capping", "demo", "list"} <= set(commands.choices)
