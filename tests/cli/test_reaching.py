"""How the dispatcher is found and spoken to: addresses, tokens, several of them, none of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from millpond.cli.cluster.processes import identify
from millpond.cli.cluster.record import ClusterProcess, ClusterRecord, write_cluster
from tests.cli.conftest import Command
from tests.cli.fake_dispatcher import Answer, FakeDispatcher, Request
from tests.servers import free_port


def record_of(folder: Path, address: str, alive: bool = True) -> ClusterRecord:
    """A cluster whose dispatcher is this process."""
    own = identify(os.getpid())
    assert own is not None
    started = own.started if alive else "1"
    process = ClusterProcess("dispatcher", 1, own.pid, started, own.boot, "log", address)
    record = ClusterRecord(str(folder / "storage"), 0, processes=[process])
    folder.mkdir(parents=True)
    write_cluster(folder, record)
    return record


def test_no_dispatcher_has_its_own_exit_code_and_advice(millpond: Command) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    for command in ("list", "cancel", "info", "logs", "checkpoint", "savepoint", "stop"):
        job = [] if command == "list" else ["views"]
        code, out, err = millpond(command, *job, "--address", nowhere)
        assert (code, out) == (3, "")
        assert nowhere in err and "refused" in err and "millpond start-cluster" in err


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://x:port", "http://x:99999999"])
def test_address_that_is_none_is_told(address: str, millpond: Command) -> None:
    code, _, err = millpond("list", "--address", address)
    assert code == 3 and "http://HOST:PORT" in err and "Traceback" not in err


def test_what_is_no_dispatcher_is_told(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.answers["GET /jobs/overview"] = Answer(b"<html>Hello</html>")
    code, _, err = millpond("list")
    assert code == 1 and "does not answer like a dispatcher" in err
    dispatcher.answers["GET /jobs/overview"] = Answer(b"<html>Hello</html>", 500)
    code, _, err = millpond("list")
    assert code == 1 and "answers 500 to GET /jobs/overview" in err


def test_started_cluster_is_found_by_its_folder(
    millpond: Command,
    dispatcher: FakeDispatcher,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MILLPOND_ADDRESS")
    dispatcher.job()
    record_of(home, dispatcher.address)
    assert "RUNNING" in millpond("list")[1]


def test_program_runs_here_if_the_dispatcher_of_the_cluster_has_ended(
    millpond: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is said: a cluster was started and never stopped."""
    monkeypatch.setattr(sys, "argv", ["millpond"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    record_of(home, "http://127.0.0.1:1", alive=False)
    (tmp_path / "app.py").write_text("print('here')\n")
    code, out, err = millpond("run", str(tmp_path / "app.py"))
    assert (code, out) == (0, "here\n")
    assert f"the dispatcher of the cluster in {home} is not running" in err


def test_token_is_sent_also_to_the_leader_that_a_standby_names(
    millpond: Command, dispatcher: FakeDispatcher, tmp_path: Path
) -> None:
    dispatcher.job()
    (tmp_path / "token").write_text("s3cret\n")

    def send_on(request: Request) -> Answer:
        return Answer({}, 307, {"location": f"{dispatcher.address}{request.path}"})

    with FakeDispatcher() as standby:
        standby.answers["GET /jobs/overview"] = send_on
        arguments = ["--address", standby.address, "--token-file", str(tmp_path / "token")]
        assert millpond("list", *arguments)[0] == 0
    for asked in (standby, dispatcher):
        assert asked.requests[0].headers["Authorization"] == "Bearer s3cret"


def test_token_of_the_cluster_goes_to_its_own_dispatchers_only(
    millpond: Command,
    dispatcher: FakeDispatcher,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(O9) Also if they are named by their addresses."""
    dispatcher.job()
    (tmp_path / "token").write_text("s3cret\n")
    record = record_of(home, dispatcher.address)
    record.token_file = str(tmp_path / "token")
    write_cluster(home, record)
    for address in (f"{dispatcher.address}/", f"{dispatcher.address},http://127.0.0.1:1"):
        assert millpond("list", "--address", address)[0] == 0
    assert millpond("list")[0] == 0, "by MILLPOND_ADDRESS"
    monkeypatch.delenv("MILLPOND_ADDRESS")
    assert millpond("list")[0] == 0
    sent = [request.headers.get("Authorization") for request in dispatcher.requests]
    assert sent == ["Bearer s3cret", None, "Bearer s3cret", "Bearer s3cret"]
    with FakeDispatcher() as other:
        other.job()
        assert millpond("list", "--address", other.address)[0] == 0
    assert [request.headers.get("Authorization") for request in other.requests] == [None]


def test_missing_token_is_explained(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.answers["GET /jobs/overview"] = Answer({"errors": ["who?"]}, 401)
    code, _, err = millpond("list")
    assert code == 1 and "--token-file" in err
    assert millpond("list", "--token-file", "/nowhere")[0] == 2


def test_next_dispatcher_is_asked_if_one_is_gone_or_stands_by(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    with FakeDispatcher() as standby:
        standby.answers["GET /jobs/overview"] = Answer({"errors": ["not the leader"]}, 503)
        gone = f"http://127.0.0.1:{free_port()}"
        addresses = ",".join([gone, standby.address, dispatcher.address])
        assert "RUNNING" in millpond("list", "--address", addresses)[1]
        addresses = ",".join([standby.address, gone])
        code, _, err = millpond("list", "--address", addresses)
        assert code == 1 and "not the leader" in err


def test_dispatchers_that_send_in_circles_are_told(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    circle = Answer({}, 307, {"location": f"{dispatcher.address}/jobs/overview"})
    dispatcher.answers["GET /jobs/overview"] = circle
    code, _, err = millpond("list")
    assert code == 1 and "redirects again" in err


def test_missing_client_library_says_what_to_install(
    millpond: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    code, _, err = millpond("list")
    assert code == 1 and "pip install 'millpond[cluster]'" in err
