"""What is missing on a machine is said, with the way to get it; the command line."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.cli.main import main
from millpond.errors import SetupError
from millpond.executors.spark import worker_python
from millpond.executors.spark.error_text import find_error, reported_errors
from millpond.executors.spark.java import find_java

ROOT = Path(__file__).parents[3]


def fake_java(folder: Path, version: str) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_missing_java_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"No Java: none found.*apt-get install openjdk-17"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SetupError, match="there is no bin/java in it"):
        find_java()


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_392", 8)])
def test_old_java_is_explained(
    version: str, major: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "jdk", version))
    with pytest.raises(SetupError, match=f"is Java {major}, which is too old"):
        find_java()


def test_new_java_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "jdk", "21.0.1"))
    assert find_java().version == "21.0.1"


@pytest.mark.parametrize("command", ["bin/demo", "bin/test"])
@pytest.mark.parametrize(("version", "message"), [(None, "none was found"), ("11.0.1", "Java 11")])
def test_commands_say_what_is_wrong_with_java(
    command: str, version: str | None, message: str, tmp_path: Path
) -> None:
    home = fake_java(tmp_path / "jdk", version) if version else str(tmp_path / "none")
    done = subprocess.run(
        [str(ROOT / command)],
        env={**os.environ, "JAVA_HOME": home, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "apt-get install openjdk-17" in done.stderr


def test_run_passes_settings_and_arguments_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLPOND_SETTINGS", "{}")
    program = tmp_path / "app.py"
    program.write_text(
        "import sys\n"
        "from helper import times\n"
        "from millpond.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([int(sys.argv[1])]).map(times).print()\n"
        "assert env.get_parallelism() == 3\n"
        "env.execute()\n"
    )
    (tmp_path / "helper.py").write_text("def times(n):\n    return n * 2\n")
    monkeypatch.setattr(sys, "argv", ["millpond"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["run", "-p", "3", "-D", "millpond.executor=direct", str(program), "21"]) == 0
    assert capsys.readouterr().out == "1> 42\n"


def test_run_explains_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLPOND_SETTINGS", "{}")
    assert main(["run", str(tmp_path / "nothing.py")]) == 2
    assert main(["run", "-D", "nonsense", str(tmp_path)]) == 2
    errors = capsys.readouterr().err
    assert "there is no program" in errors
    assert "-D needs KEY=VALUE" in errors


def test_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    assert "execution.checkpointing.dir" in capsys.readouterr().out


def test_errors_survive_the_way_through_a_text() -> None:
    with pytest.raises(RuntimeError) as error, reported_errors():
        raise SetupError("with\nlines and (brackets)")
    text = f"pages of\n\tat java.lang.Thread {error.value} and more"
    found = find_error(text)
    assert isinstance(found, SetupError)
    assert str(found) == "with\nlines and (brackets)"
    assert find_error("nothing in here") is None


def test_workers_are_started_with_the_path_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker_python, "prepared_folder", lambda: tmp_path / "it's new")
    monkeypatch.setenv("PYTHONPATH", "/my/modules")
    script = worker_python.worker_python()
    show = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'])"
    environment = {**os.environ, "PYTHONPATH": "/spark/python/lib/pyspark.zip:/my/modules"}
    done = subprocess.run(
        [script, "-c", show], capture_output=True, text=True, check=True, env=environment
    )
    executable, path = done.stdout.split()
    assert executable == sys.executable
    assert path.startswith("/my/modules:")
    assert "zip" not in path
    (tmp_path / "file").touch()
    monkeypatch.setattr(worker_python, "prepared_folder", lambda: tmp_path / "file" / "below")
    assert worker_python.worker_python() == sys.executable, "works without a place to write, too"
