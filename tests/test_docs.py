"""The code in the docs runs, and its output is what the page says."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from millpond.apps.frequency_capping.config import parse_config
from millpond.cli.main import build_parser
from millpond.testing import direct_environment
from tests.servers import free_port, wait_until
from tests.test_examples import OUTPUT

ROOT = Path(__file__).parent.parent
PATHS = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page that are marked with a language ("" for none)."""
    fenced = re.findall(
        r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return [code for marked, code in fenced if marked == language]


def test_testing_guide_runs(tmp_path: Path) -> None:
    names: dict[str, object] = {"marks_folder": tmp_path}
    code = blocks("docs/testing.md", "python")
    assert len(code) == 3
    for block in code:
        exec(compile(block, "docs/testing.md", "exec"), names)


def test_guide_to_columns_runs(tmp_path: Path) -> None:
    names: dict[str, object] = {"folder": tmp_path, "environment": direct_environment()}
    code = blocks("docs/guide/columns.md", "python")
    assert len(code) == 2
    for block in code:
        exec(compile(block, "docs/guide/columns.md", "exec"), names)


def test_guide_to_time_runs() -> None:
    names: dict[str, object] = {"environment": direct_environment({"parallelism.default": 1})}
    code = blocks("docs/guide/time.md", "python")
    assert len(code) == 3
    for block in code:
        exec(compile(block, "docs/guide/time.md", "exec"), names)


def test_guide_to_connectors_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Kafka and Redis are only named there: nothing is sent."""
    environment = direct_environment({"parallelism.default": 1})
    names: dict[str, object] = {"environment": environment, "folder": tmp_path}
    code, (output,) = (blocks("docs/guide/connectors.md", kind) for kind in ("python", ""))
    assert len(code) == 3
    exec(compile(code[0], "docs/guide/connectors.md", "exec"), names)
    assert sorted(capsys.readouterr().out.split()) == sorted(output.split())
    for block in code[1:]:
        exec(compile(block, "docs/guide/connectors.md", "exec"), names)


def test_guide_to_state_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    environment = direct_environment({"parallelism.default": 1})
    names: dict[str, object] = {"environment": environment, "folder": tmp_path}
    code = blocks("docs/guide/state.md", "python")
    outputs = [text for text in blocks("docs/guide/state.md", "") if "millpond " not in text]
    assert len(code) == len(outputs) == 5
    for block, output in zip(code, outputs, strict=True):
        exec(compile(block, "docs/guide/state.md", "exec"), names)
        assert capsys.readouterr().out == output


def test_guide_to_flow_control_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"environment": direct_environment({"parallelism.default": 2})}
    (code,) = blocks("docs/guide/flow-control.md", "python")
    (output,) = blocks("docs/guide/flow-control.md", "")
    exec(compile(code, "docs/guide/flow-control.md", "exec"), names)
    assert capsys.readouterr().out == output


def test_guide_to_queryable_state_shows_the_example_and_what_it_prints() -> None:
    """The example runs in test_examples.py."""
    page, example = "docs/guide/queryable-state.md", "queryable_state.py"
    code = blocks(page, "python")
    program = (ROOT / "examples" / example).read_text()
    assert len(code) == 3 and all(block in program for block in code)
    assert blocks(page, "")[0].splitlines() == OUTPUT[example]


@pytest.mark.parametrize(
    ("kind", "late", "windows"),
    [("tumbling", {25, 40}, 7), ("session", {40}, 3), ("sliding", {25, 40}, 10)],
)
def test_pictures_of_the_guide_show_what_runs_say(kind: str, late: set[int], windows: int) -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    assert spec is not None and spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    facts = pictures.run(kind)
    assert {fact[1] for fact in facts if fact[0] == "late"} == late
    assert sum(fact[0] == "window" for fact in facts) == windows
    assert (ROOT / "docs" / "guide" / f"{kind}.svg").exists()


@pytest.mark.spark
def test_readme_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    (program,) = blocks("README.md", "python")
    outputs = blocks("README.md", "")
    assert len(program.splitlines()) <= 22
    path = tmp_path / "app.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "millpond", "run", "--master", "local[2]", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout in outputs
    assert done.stderr == ""


@pytest.mark.spark
def test_demo_shows_its_result(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    command = [sys.executable, "-m", "millpond", "capping", "demo", "--seconds", "4"]
    done = subprocess.run(
        [*command, "--rate", "500", "--picture", str(picture)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "capped at once" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert done.stderr == ""


def test_rules_of_the_guide_are_right() -> None:
    (text,) = blocks("docs/guide/frequency-capping.md", "yaml")
    config = parse_config(text, "the guide")
    assert [rule["name"] for rule in config.rules] == ["ads", "campaigns of a day", "clicks"]
    assert config.record_format.name("ad") == "creative"


@pytest.mark.parametrize("page", ["frequency-capping.md", "operating-capping.md"])
def test_commands_of_the_guides_to_capping_are_right(page: str) -> None:
    text = (ROOT / "docs" / "guide" / page).read_text().replace("\\\n", "")
    commands = re.findall(r"^(millpond capping .*?)(?:  +#.*)?$", text, re.MULTILINE)
    commands += re.findall(r"`(millpond capping [^`]* --[^`]*)`", text)
    assert len(commands) >= 3
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])


@pytest.mark.spark
def test_ten_minutes_with_frequency_capping(tmp_path: Path) -> None:
    """What the guide tells to type, and what it says comes of it."""
    page = "docs/guide/frequency-capping.md"
    make_views, run, serve, ask, explain = blocks(page, "bash")
    (answer,) = blocks(page, "json")
    millpond = tmp_path / "millpond"
    millpond.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m millpond "$@"\n')
    millpond.chmod(0o700)
    port = str(free_port())
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": PATHS}

    def start(command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-ec", "exec " + command.replace("8090", port)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    subprocess.run(["bash", "-ec", make_views], cwd=tmp_path, check=True)
    job, service = start(run), start(serve)
    try:
        url = ask.split("'")[1].replace("8090", port)
        wait_until(lambda: _answer(url) == answer, "user 42 is not capped", 120)
        told, _ = start(explain).communicate(timeout=120)
        assert "ad:ad-17 by rule 'default': 5 of 5 views, CAPPED since 2023-11-14" in told
        letters = list((tmp_path / "state" / "dead-letters").glob("*.jsonl"))
        assert "not JSON" in letters[0].read_text()
    finally:
        service.terminate()
        job.send_signal(signal.SIGINT)
        for process in (service, job):
            process.communicate(timeout=60)


def _answer(url: str) -> str | None:
    try:
        return httpx.get(url).text + "\n"
    except httpx.HTTPError:
        return None
