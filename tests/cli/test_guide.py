"""The guides to operations and Kubernetes: their commands are right, and the quick start runs (O8)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.cli.cluster.record import read_cluster
from millpond.cli.exit_codes import ExitCode
from millpond.cli.main import build_parser
from millpond.common import options
from tests.test_docs import ROOT, blocks

OPERATIONS, KUBERNETES = "docs/guide/operations.md", "docs/guide/kubernetes.md"


def commands(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    in_blocks = [
        line for kind in ("", "sh") for block in blocks(page, kind) for line in block.split("\n")
    ]
    found = [*in_blocks, *re.findall(r"[`(](millpond [^`)]+)[`)]", text)]
    return [line for line in found if line.startswith("millpond ")]


@pytest.mark.parametrize("command", sorted({*commands(OPERATIONS), *commands(KUBERNETES)}))
def test_command_of_the_guide_is_one(command: str) -> None:
    build_parser().parse_args(shlex.split(command)[1:])


def test_guide_to_operations_has_the_usual_commands() -> None:
    used = {command.split()[1] for command in commands(OPERATIONS)}
    every = set(build_parser()._subparsers._group_actions[0].choices)  # type: ignore
    assert every - used == {"capping", "demo", "prepare", "settings"}


@pytest.mark.parametrize("page", [OPERATIONS, KUBERNETES])
def test_files_and_settings_that_the_guide_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for name in re.findall(r"(?<![\w/])(?:deploy|docs)/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:\d\d-|optional/)[\w-]+\.yaml)`", text):
        assert (ROOT / "deploy" / "kubernetes" / name).exists(), name
    known = {option.key for option in options.ALL}
    for key in re.findall(r"`((?:millpond|parallelism|state)\.[\w.-]+)(?:=[^`]*)?`", text):
        assert key in known, key


def test_exit_codes_of_the_guide_are_those_of_the_code() -> None:
    (line,) = [own for own in (ROOT / OPERATIONS).read_text().splitlines() if "Exit codes:" in own]
    assert [int(number) for number in re.findall(r"\d+", line)] == [code.value for code in ExitCode]


@pytest.mark.spark
@pytest.mark.cluster
def test_quick_start_runs(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(O3, O8) All of it real: master, worker, dispatcher, and a job that finds the cluster's secret. Only
    the port and the size differ from the page, for machines where they are taken or small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}")
    (program,) = blocks(OPERATIONS, "python")
    Path("views.py").write_text(program)
    (script,) = blocks(OPERATIONS, "sh")
    lines = script.splitlines()
    assert (lines[0], lines[-1]) == ("millpond start-cluster", "millpond stop-cluster")
    lines[0] += " --port 0 --workers 1 --cores 1 --memory 1g"
    outputs = {}
    try:
        for line in lines[:-1]:
            outputs[line.split()[1]] = said(line)
            if line == lines[0]:
                record = read_cluster(home)
    finally:
        stopped = said(lines[-1])
    assert record is not None
    assert [own.role for own in record.processes] == ["master", "worker", "dispatcher"]
    assert outputs["run"] in blocks(OPERATIONS, "") and outputs["logs"] == outputs["run"]
    assert re.search(r"FINISHED .* views$", outputs["list"], re.MULTILINE)
    ended = [line.split("  ")[0] for line in stopped.splitlines()]
    assert ended == ["dispatcher 1", "worker 1", "Spark master"]
    assert record.living() == [] and read_cluster(home) is None


def said(line: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout
