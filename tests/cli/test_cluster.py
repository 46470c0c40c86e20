"""start-cluster and stop-cluster (O3, O8): processes, their record, and what is never ended."""

from __future__ import annotations

import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.cluster import start as cluster_start
from millpond.cli.cluster.processes import Ending, ProcessIdentity, end, identify, is_alive
from millpond.cli.cluster.record import locked, read_cluster
from tests.cli.conftest import Command
from tests.cli.test_reaching import record_of

STAND_IN = (sys.executable, str(Path(__file__).parent / "a_dispatcher.py"))
SLEEPER = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]


@pytest.fixture
def dispatchers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says how dispatchers behave that start-cluster starts."""
    start = cluster_start.start_cluster

    def behave(how: str) -> None:
        monkeypatch.setattr(
            cluster_start, "start_cluster", lambda parsed: start(parsed, [*STAND_IN, how])
        )

    behave("answer")
    return behave


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_missing_packages_are_named_before_anything_is_started(
    millpond: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `pip install millpond` without the extra."""
    monkeypatch.setattr(cluster_start, "_DISPATCHER_PACKAGES", ("json", "no_such_package"))
    code, _, error = millpond("start-cluster", "--dir", str(tmp_path / "cluster"))
    assert code == 1
    assert "start-cluster needs no_such_package: pip install 'millpond[cluster]'" in error
    assert not (tmp_path / "cluster").exists()


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_cluster_without_spark_is_started_found_and_ended(
    home: Path, millpond: Command, dispatchers: Any
) -> None:
    code, out, err = millpond(
        *("start-cluster", "--local", "--port", "0", "--dispatchers", "2", "-D", "a=b")
    )
    assert code == 0 and err == ""
    record = read_cluster(home)
    assert record is not None
    first, second = record.of("dispatcher")
    token = (home / "token").read_text().strip()
    assert f"Dashboard: {first.address}/#token={token} " in out
    assert millpond("dashboard") == (0, f"{first.address}/#token={token}\n", "")
    assert token not in Path(f"/proc/{first.pid}/cmdline").read_text()
    assert [own.is_alive() for own in record.processes] == [True, True]
    assert Path(first.log).read_text().startswith("settings ['a=b'], master local[*]")
    assert os.getsid(first.pid) == first.pid != os.getsid(0), "Ctrl-C is not for it"
    assert millpond("list") == (0, "no running jobs\n", "")
    assert [rights(path) for path in (home, home / "logs", home / "storage")] == [0o700] * 3
    files = (home / "cluster.json", Path(first.log), home / "token")
    assert [rights(path) for path in files] == [0o600] * 3

    code, out, err = millpond("start-cluster", "--local", "--port", "0")
    assert code == 1 and first.address in err and "stop-cluster" in err
    assert [own.is_alive() for own in record.processes] == [True, True], "nothing was disturbed"

    code, out, err = millpond("stop-cluster", "--json")
    assert code == 0
    ended = json.loads(out)["ended"]
    assert [(own["pid"], own["ended"]) for own in ended] == [
        (first.pid, "terminated"),
        (second.pid, "terminated"),
    ]
    assert record.living() == []
    code, _, err = millpond("stop-cluster")
    assert code == 1 and "There is no cluster in" in err


def test_token_stays_when_a_cluster_is_started_again(
    home: Path, millpond: Command, dispatchers: Any
) -> None:
    """(O9) What others have been told goes on to work. Who wants a new one removes the file."""
    start = ("start-cluster", "--local", "--port", "0")
    tokens = []
    for remove in (False, True, False):
        assert millpond(*start)[0] == 0
        tokens.append((home / "token").read_text())
        assert millpond("list")[0] == 0
        assert millpond("stop-cluster")[0] == 0
        if remove:
            (home / "token").unlink()
    assert tokens[0] == tokens[1] != tokens[2]


def test_token_is_the_users_or_none_if_that_is_asked_for(
    home: Path, tmp_path: Path, millpond: Command, dispatchers: Any
) -> None:
    (tmp_path / "mine").write_text("a token of my own/\n")
    start = ("start-cluster", "--local", "--port", "0")
    code, _, err = millpond(*start, "--token-file", str(tmp_path / "mine"))
    assert code == 2 and "one line, the token" in err
    (tmp_path / "mine").write_text("a-token-of-my-own/&\n")
    code, out, _ = millpond(*start, "--token-file", str(tmp_path / "mine"))
    assert code == 0 and "/#token=a-token-of-my-own%2F%26 " in out
    assert millpond("list")[0] == 0 and not (home / "token").exists()
    assert millpond("stop-cluster")[0] == 0
    code, out, _ = millpond(*start, "--no-token")
    assert code == 0 and "#token" not in out and not (home / "token").exists()
    assert millpond("list")[0] == 0
    assert millpond("stop-cluster")[0] == 0


def test_dispatcher_that_fails_to_start_shows_the_end_of_its_log(
    home: Path, millpond: Command, dispatchers: Any
) -> None:
    dispatchers("fail")
    code, out, err = millpond("start-cluster", "--local", "--port", "0")
    assert (code, out) == (1, "")
    assert "dispatcher 1 ended with exit code 1" in err and "The storage is broken." in err
    assert read_cluster(home) is None


def test_dispatcher_that_does_not_answer_is_ended_again(
    home: Path, millpond: Command, dispatchers: Any
) -> None:
    dispatchers("hang")
    code, _, err = millpond("start-cluster", "--local", "--port", "0", "--timeout", "1")
    assert code == 1 and "did not answer within 1 s" in err and "nothing to announce" in err
    assert read_cluster(home) is None


def test_interrupted_start_leaves_nothing(
    home: Path, millpond: Command, dispatchers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatchers("hang")
    records = []

    def interrupt(*_: Any) -> str:
        records.append(read_cluster(home))
        raise KeyboardInterrupt

    monkeypatch.setattr("millpond.cli.cluster.starting._announced", interrupt)
    assert millpond("start-cluster", "--local", "--port", "0")[0] == 130
    assert records[0] is not None and records[0].of("dispatcher"), "known before it is waited for"
    assert records[0].living() == [] and read_cluster(home) is None


def test_process_that_stays_is_killed_after_a_while(
    home: Path, millpond: Command, dispatchers: Any
) -> None:
    dispatchers("stay")
    assert millpond("start-cluster", "--local", "--port", "0")[0] == 0
    code, out, _ = millpond("stop-cluster", "--grace", "0.1")
    assert code == 0 and "was killed because it did not end in time" in out


def test_port_that_is_taken_is_told_before_anything_starts(
    home: Path, millpond: Command, dispatchers: Any
) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = millpond("start-cluster", "--local", "--port", port)
    assert code == 1 and f"127.0.0.1:{port} is in use" in err and "--port" in err
    assert not home.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--local", "--workers", "2"],
        ["--workers", "0"],
        ["--memory", "much"],
        ["--tls-cert", "/nowhere"],
        ["--token-file", "/nowhere"],
        ["-D", "x"],
        ["--local", "--master", "yarn"],
        ["--local", "--no-token", "--token-file", "token"],
        ["--local", "--no-token", "--host", "10.0.0.5"],
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(
    arguments: list[str], home: Path, millpond: Command, dispatchers: Any
) -> None:
    assert millpond("start-cluster", "--port", "0", *arguments)[0] == 2
    assert not home.exists()


def test_process_that_got_the_id_of_another_is_never_ended(
    home: Path, millpond: Command, sleeper: subprocess.Popen[bytes]
) -> None:
    own = identify(sleeper.pid)
    assert own is not None
    for wrong in (
        ProcessIdentity(own.pid, own.started + "0", own.boot),
        ProcessIdentity(own.pid, own.started, "another boot"),
    ):
        assert not is_alive(wrong)
        assert end(wrong, 0) is Ending.GONE
    assert is_alive(own)
    record = record_of(home, "http://127.0.0.1:1", alive=False)
    assert record.living() == []
    code, out, _ = millpond("stop-cluster")
    assert code == 0 and "had already ended" in out, "this process has the id, but not the start"


def test_cluster_of_another_machine_is_left_alone(home: Path, millpond: Command) -> None:
    """Homes can be shared."""
    record_of(home, "http://elsewhere:1")
    path = home / "cluster.json"
    path.write_text(path.read_text().replace(platform.node(), "another machine"))
    code, _, err = millpond("stop-cluster")
    assert code == 1 and "runs on the machine another machine" in err
    code, _, err = millpond("start-cluster", "--local", "--port", "0")
    assert code == 1 and "another machine" in err


def test_record_of_a_newer_millpond_is_not_misread(home: Path, millpond: Command) -> None:
    record_of(home, "http://127.0.0.1:1")
    path = home / "cluster.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    code, _, err = millpond("list")
    assert code == 1 and "has format 2" in err
    path.write_text("{")
    code, _, err = millpond("stop-cluster")
    assert code == 1 and "cannot be read" in err and "Traceback" not in err


def test_two_starts_at_once_do_not_meet(home: Path, millpond: Command, dispatchers: Any) -> None:
    home.mkdir()
    with locked(home):
        code, _, err = millpond("start-cluster", "--local", "--port", "0")
    assert code == 1 and "is at work in" in err


def test_jobs_are_ended_after_the_dispatcher_and_can_go_on(
    home: Path, millpond: Command, dispatchers: Any, sleeper: subprocess.Popen[bytes]
) -> None:
    """What has a job's process id but is not about the job stays."""
    jid = "ab" * 16
    assert millpond("start-cluster", "--local", "--port", "0")[0] == 0
    for name, pid in ((jid, None), ("cd" * 16, sleeper.pid)):
        folder = home / "storage" / "jobs" / name
        folder.mkdir(parents=True)
        if pid is None:
            job = subprocess.Popen([*SLEEPER, str(folder)], stdout=subprocess.PIPE)
            assert job.stdout is not None
            job.stdout.readline()
        report = {"pid": pid or job.pid, "host": platform.node(), "state": "RUNNING"}
        (folder / "report.json").write_text(json.dumps(report))
    code, out, err = millpond("stop-cluster")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("dispatcher 1") and lines[1].startswith("job ") and len(lines) == 2
    assert str(job.pid) in lines[1]
    assert "1 job will resume" in err
    assert job.wait(10) and sleeper.poll() is None
    assert job.stdout is not None
    job.stdout.close()
