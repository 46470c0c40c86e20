"""Commands about jobs that a dispatcher runs (O8): what is asked, what is shown, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.fake_dispatcher import JID, OTHER, Answer, FakeDispatcher, Request, Steps


def test_list_shows_what_runs_and_with_all_what_has_ended(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    dispatcher.job("FINISHED", OTHER, "old")
    code, out, _ = millpond("list")
    assert code == 0
    assert JID in out and "RUNNING" in out and "1m 05s" in out and OTHER not in out
    _, out, _ = millpond("list", "-a")
    assert JID in out and OTHER in out
    _, out, _ = millpond("list", "--json")
    assert [job["jid"] for job in json.loads(out)] == [JID]


def test_list_says_that_nothing_runs(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.job("FAILED")
    assert millpond("list")[1] == "no running jobs; 1 ended (millpond list -a)\n"


@pytest.mark.parametrize("given", [JID, JID.upper(), JID[:6], "views"])
def test_job_is_found_by_id_beginning_of_id_or_name(
    given: str, millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job("FINISHED", OTHER, "views")
    dispatcher.job()
    code, out, _ = millpond("info", given)
    assert code == 0 and JID in out


def test_job_that_is_not_there_has_its_own_exit_code(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    for command in (["cancel"], ["info"], ["logs"], ["stop"], ["checkpoint"], ["savepoint"]):
        code, out, err = millpond(*command, "nobody")
        assert code == 4 and out == ""
        assert "has no job 'nobody'" in err and "millpond list -a" in err


def test_name_of_two_running_jobs_is_not_enough(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    dispatcher.job(jid=OTHER)
    code, _, err = millpond("cancel", "views")
    assert code == 4 and JID in err and OTHER in err and not dispatcher.sent("PATCH")


def test_cancel_waits_for_the_end(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.job()
    running, ended = {"state": "CANCELLING"}, {"state": "CANCELED"}
    dispatcher.answers[f"PATCH /jobs/{JID}"] = Answer({}, 202)
    dispatcher.answers[f"GET /jobs/{JID}"] = Steps([running, running, ended])
    code, out, _ = millpond("cancel", "views", "--json")
    assert code == 0
    assert json.loads(out) == {"jid": JID, "name": "views", "state": "CANCELED"}
    (request,) = [own for own in dispatcher.requests if own.method == "PATCH"]
    assert request.query == {"mode": "cancel"}


def test_job_that_has_ended_cannot_be_cancelled(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job("FINISHED")
    code, _, err = millpond("cancel", JID)
    assert code == 1 and "has already ended: FINISHED" in err and not dispatcher.sent("PATCH")


def test_job_that_finishes_while_it_is_cancelled_is_told(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    dispatcher.answers[f"PATCH /jobs/{JID}"] = Answer({}, 202)
    dispatcher.answers[f"GET /jobs/{JID}"] = {"state": "FINISHED"}
    code, out, _ = millpond("cancel", JID)
    assert code == 1 and "FINISHED" in out


def in_progress(location: str) -> Steps:
    done = {"status": {"id": "COMPLETED"}, "operation": {"location": location}}
    return Steps([{"status": {"id": "IN_PROGRESS"}}, done])


def test_savepoint_is_taken_by_the_dispatcher(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    dispatcher.answers[f"POST /jobs/{JID}/savepoints"] = {"request-id": "r1"}
    dispatcher.answers[f"GET /jobs/{JID}/savepoints/r1"] = in_progress("/saved/1")
    code, out, _ = millpond("savepoint", "views", "/saved")
    assert (code, out) == (0, "/saved/1\n")
    (request,) = [own for own in dispatcher.requests if own.method == "POST"]
    assert request.json == {"target-directory": "/saved", "cancel-job": False}


def test_relative_folder_for_savepoints_is_the_one_of_the_caller(
    millpond: Command,
    dispatcher: FakeDispatcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    dispatcher.job()
    dispatcher.answers[f"POST /jobs/{JID}/savepoints"] = {"request-id": "r1"}
    dispatcher.answers[f"GET /jobs/{JID}/savepoints/r1"] = in_progress("x")
    assert millpond("savepoint", "views", "saved")[0] == 0
    (request,) = [own for own in dispatcher.requests if own.method == "POST"]
    assert request.json["target-directory"] == str(tmp_path / "saved")


def test_failed_savepoint_is_told_without_stack_trace(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job()
    trace = "SavepointError: disk full\n\tat somewhere.java\n\tat elsewhere.java"
    dispatcher.answers[f"POST /jobs/{JID}/savepoints"] = {"request-id": "r1"}
    dispatcher.answers[f"GET /jobs/{JID}/savepoints/r1"] = {
        "status": {"id": "COMPLETED"},
        "operation": {"failure-cause": {"class": "SavepointError", "stack-trace": trace}},
    }
    code, out, err = millpond("savepoint", "views")
    assert (code, out) == (1, "")
    assert err == "millpond: The savepoint failed: SavepointError: disk full\n"


def test_stop_drains_and_waits_for_the_end(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.job()
    dispatcher.answers[f"POST /jobs/{JID}/stop"] = Answer({"request-id": "r1"}, 202)
    dispatcher.answers[f"GET /jobs/{JID}/savepoints/r1"] = in_progress("/saved/1")
    dispatcher.answers[f"GET /jobs/{JID}"] = Steps([{"state": "RUNNING"}, {"state": "FINISHED"}])
    code, out, _ = millpond("stop", "views", "--savepoint", "/saved", "--drain", "--json")
    assert code == 0 and json.loads(out) == {"savepoint": "/saved/1"}
    (request,) = [own for own in dispatcher.requests if own.method == "POST"]
    assert request.json == {"targetDirectory": "/saved", "drain": True}


def test_savepoint_of_another_machine_is_disposed_of_by_the_dispatcher(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.answers["POST /savepoint-disposal"] = {"request-id": "r1"}
    dispatcher.answers["GET /savepoint-disposal/r1"] = {"status": {"id": "COMPLETED"}}
    code, out, _ = millpond("savepoint", "dispose", "/not/here/1")
    assert (code, out) == (0, "disposed /not/here/1\n")


def test_checkpoints_come_from_the_report(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.job()
    record = {
        "id": 7,
        "started_ms": 0,
        "duration_ms": 12,
        "bytes_written": 2000,
        "bytes_full": 5_000_000,
        "is_savepoint": True,
        "records": 3,
    }
    dispatcher.answers[f"GET /jobs/{JID}/report"] = {"checkpoints": {"history": [record]}}
    code, out, _ = millpond("checkpoint", "views")
    assert code == 0 and "12 ms" in out and "5.0 MB" in out and "savepoint" in out
    assert json.loads(millpond("checkpoint", "views", "--json")[1]) == [record]


def test_state_of_a_key_with_any_characters_is_looked_up(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    """(O6, O8)"""
    dispatcher.job()
    path = f"GET /jobs/{JID}/state/my counts/a/b?c"
    dispatcher.answers[path] = {"found": True, "value": {"n": 3}}
    code, out, _ = millpond("state", "query", "views", "my counts", "a/b?c", "--entry", "x&y")
    assert (code, json.loads(out)) == (0, {"n": 3})
    assert dispatcher.requests[-1].query == {"entry": "x&y"}
    dispatcher.answers[path] = {"found": False, "value": None}
    code, out, err = millpond("state", "query", "views", "my counts", "a/b?c")
    assert (code, out) == (0, "") and "has no value for key a/b?c" in err
    code, out, _ = millpond("state", "query", "views", "my counts", "a/b?c", "--json")
    assert json.loads(out) == {"found": False, "value": None}


def test_look_up_while_the_job_restarts_is_told_in_the_words_of_the_dispatcher(
    millpond: Command, dispatcher: FakeDispatcher
) -> None:
    dispatcher.job("RESTARTING")
    dispatcher.answers[f"GET /jobs/{JID}/state/counts/a"] = Answer(
        {"errors": ["The job restarts. Try again.\n\tat somewhere"]}, 503
    )
    code, _, err = millpond("state", "query", "views", "counts", "a")
    assert code == 1 and err == "millpond: The job restarts. Try again.\n"


def test_info_shows_vertices_and_numbers(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.job()
    _, out, _ = millpond("info", "views")
    assert "Source: views" in out and "1,234" in out and "RUNNING, for 1m 05s" in out
    content = json.loads(millpond("info", "views", "--json")[1])
    assert content["job"]["jid"] == JID and content["plan"]["name"] == "views"


def test_last_lines_of_a_log_are_shown(millpond: Command, dispatcher: FakeDispatcher) -> None:
    dispatcher.job()
    dispatcher.answers[f"GET /jobs/{JID}/log"] = Answer("one\ntwo ü\n".encode())
    code, out, _ = millpond("logs", "views", "-n", "2")
    assert (code, out) == (0, "one\ntwo ü\n")
    assert dispatcher.requests[-1].query == {"tail": "2"}
    assert json.loads(millpond("logs", "views", "--json")[1])["lines"] == ["one", "two ü"]


@pytest.mark.parametrize("parts", [True, False], ids=["parts", "whole"])
def test_log_is_followed_until_the_job_ends(
    parts: bool, millpond: Command, dispatcher: FakeDispatcher
) -> None:
    """Characters that come in two parts are put together; what is printed last is not lost."""
    dispatcher.job()
    written = [b"old\nlast\n", b"gr\xc3", b"\xbcn\n", b"end\n"]
    log = b""

    def answer(request: Request) -> Answer:
        nonlocal log
        log += written.pop(0) if written else b""
        asked = request.headers["Range"].removeprefix("bytes=")
        if not parts:
            return Answer(log)
        first = max(0, len(log) - int(asked[1:])) if asked[0] == "-" else int(asked[:-1])
        if first >= len(log):
            return Answer(b"", 416, {"content-range": f"bytes */{len(log)}"})
        return Answer(log[first:], 206, {"content-range": f"bytes {first}-x/{len(log)}"})

    dispatcher.answers[f"GET /jobs/{JID}/log"] = answer
    running, ended = {"state": "RUNNING"}, {"state": "FINISHED"}
    dispatcher.answers[f"GET /jobs/{JID}"] = Steps([running, running, ended])
    code, out, _ = millpond("logs", "views", "-f", "-n", "1")
    assert (code, out) == (0, "last\ngrün\nend\n")


def test_log_that_begins_anew_is_followed_from_its_beginning(dispatcher: FakeDispatcher) -> None:
    from millpond.cli.client.rest import RestClient
    from millpond.cli.logs import LogFollower

    range_of = "content-range"
    dispatcher.answers[f"GET /jobs/{JID}/log"] = Steps(
        [
            Answer(b"much text\n", 206, {range_of: "bytes 0-9/10"}),
            Answer(b"", 416, {range_of: "bytes */4"}),
            Answer(b"new\n", 206, {range_of: "bytes 0-3/4"}),
        ]
    )
    with RestClient([dispatcher.address]) as client:
        log = LogFollower(client, JID)
        assert [log.new_text() for _ in range(3)] == ["much text\n", "", "new\n"]
    asked = [request.headers["Range"] for request in dispatcher.requests]
    assert asked == ["bytes=0-", "bytes=10-", "bytes=0-"]
