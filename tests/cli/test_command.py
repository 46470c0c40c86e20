"""The command as a whole: help, completion, plans of programs, what is fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.cli import application
from millpond.cli.main import build_parser
from tests.cli.conftest import Command

COMMANDS = (
    *("run", "run-application", "start-cluster", "stop-cluster", "list", "info", "logs", "cancel"),
    *("savepoint", "stop", "checkpoint", "state", "capping", "demo", "prepare", "settings"),
    "completion",
)


def test_all_commands_have_help(millpond: Command) -> None:
    """(O8)"""
    code, out, _ = millpond("--help")
    assert code == 0 and all(f"    {command}" in out for command in COMMANDS)
    for command in COMMANDS:
        code, out, _ = millpond(command, "--help")
        assert code == 0 and "usage:" in out
    assert millpond("nonsense")[0] == 2


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_what_the_shell_can_read(shell: str, millpond: Command) -> None:
    code, out, _ = millpond("completion", shell)
    assert code == 0
    assert "start-cluster" in out and "--from-savepoint" in out
    if shell == "bash":
        asked = f"{out}\nCOMP_WORDS=(millpond sto); COMP_CWORD=1; _shtab_millpond; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert set(done.stdout.split()) == {"stop", "stop-cluster"}


def test_command_line_is_read_without_loading_what_only_some_commands_need() -> None:
    """`millpond list` must not take half a second."""
    show = (
        "import sys; from millpond.cli.main import build_parser; build_parser();"
        "print([m for m in ('numpy', 'pyarrow', 'pyspark', 'httpx', 'fastapi') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_keys_named_for_speed_are_those_of_the_options() -> None:
    from millpond.cli import programs
    from millpond.common import options

    named = {value for name, value in vars(programs).items() if name.endswith("_KEY")}
    assert named <= {option.key for option in options.ALL}
    assert options.MASTER.key == programs.MASTER_KEY


def test_settings_are_listed_as_json(millpond: Command) -> None:
    entries = json.loads(millpond("settings", "--json")[1])
    assert {"key", "default", "meaning"} == set(entries[0])
    assert "millpond.dynamic-allocation" in {entry["key"] for entry in entries}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["millpond"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "app.py"
    path.write_text(
        "import sys\n"
        "from millpond.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "print('the program speaks', sys.argv[1:])\n"
        "numbers = env.from_collection([1]).key_by(lambda n: n).map(lambda n: 1 / 0)\n"
        "if 'collect' in sys.argv:\n"
        "    list(numbers.execute_and_collect())\n"
        "numbers.print()\n"
        "try:\n"
        "    env.execute('numbers')\n"
        "except Exception as problem:\n"
        "    print('caught', problem)\n"
        "raise SystemExit('after execute')\n"
    )
    return path


def test_info_shows_the_plan_of_a_program_and_runs_nothing(
    program: Path, millpond: Command
) -> None:
    """(E2, O8) Neither Spark nor the job, although the program names no parallelism."""
    code, out, err = millpond("info", "--master", "local[3]", str(program), "a", "b")
    assert code == 0 and out.startswith("Job 'numbers'") and "x3" in out
    assert err == "the program speaks ['a', 'b']\n"
    code, out, _ = millpond("info", "--json", "-p", "5", str(program))
    plan = json.loads(out)["plan"]
    assert plan["name"] == "numbers" and {node["parallelism"] for node in plan["nodes"]} == {5}
    assert millpond("info", "-p", "2", str(program), "collect")[0] == 0


def test_info_says_that_it_does_not_know_a_clusters_cores(program: Path, millpond: Command) -> None:
    code, out, err = millpond("info", "--master", "spark://nowhere:7077", str(program))
    assert code == 0 and "x1" in out and "unknown here; the plan shows 1" in err


def test_info_of_a_program_without_a_job_fails(tmp_path: Path, millpond: Command) -> None:
    (tmp_path / "empty.py").touch()
    code, _, err = millpond("info", str(tmp_path / "empty.py"))
    assert code == 1 and "without calling execute()" in err
    assert millpond("info", str(tmp_path / "missing.py"))[0] == 2


def test_application_gets_what_the_command_line_says(
    program: Path, home: Path, millpond: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(O4)"""
    seen = []

    def run_application(*arguments: object, **rest: object) -> int:
        seen.append((*arguments, rest))
        return 1

    monkeypatch.setattr(application, "_runner", lambda: run_application)
    code, _, _ = millpond(
        *("run-application", "-D", "a=b", "--rest-port", "0", "--storage", "/s", str(program), "x")
    )
    assert code == 1
    assert millpond("run-application", str(program))[0] == 1
    token = program.with_name("token")
    token.write_text("0123456789abcdef\n")
    safe = ("--rest-port", "0", "--rest-token-file", str(token))
    assert millpond("run-application", *safe, str(program))[0] == 1
    assert millpond("run-application", "--rest-port", "0", "--rest-no-token", str(program))[0] == 1
    rest = {"host": "127.0.0.1", "port": 0, "tls_cert": None, "tls_key": None}
    rest |= {"token_file": None, "no_token": False}
    folder = home / "applications" / "app"
    assert seen == [
        (program, ["x"], {"a": "b"}, Path("/s"), rest),
        (program, [], {}, folder, {}),
        (program, [], {}, folder, {**rest, "token_file": token}),
        (program, [], {}, folder, {**rest, "no_token": True}),
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--rest-token-file", "f"], "--rest-token-file needs --rest-port"),
        (["--rest-no-token"], "--rest-no-token needs --rest-port"),
        (["--rest-port", "0", "--rest-host", "0.0.0.0", "--rest-no-token"], "a loopback address"),
        (["--rest-port", "0", "--rest-token-file", "f"], "there is no file f"),
        (["--rest-port", "0", "--rest-tls-key", "f"], "must be given together"),
    ],
)
def test_application_refuses_what_does_not_go_together(
    program: Path, millpond: Command, options: list[str], problem: str
) -> None:
    code, _, err = millpond("run-application", *options, str(program))
    assert code == 2 and problem in err


def test_parser_is_built_anew_each_time() -> None:
    assert build_parser() is not build_parser()
