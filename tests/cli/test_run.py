"""`millpond run` with a dispatcher: sent, started, followed; else in this process (O4, O8)."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.client import following
from millpond.cli.packing import local_modules
from tests.cli.conftest import Command
from tests.cli.fake_dispatcher import JID, Answer, FakeDispatcher, Request, Steps


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text("print('it ran here')\n")
    return path


@pytest.fixture
def accepting(dispatcher: FakeDispatcher) -> FakeDispatcher:
    """Takes any program, and says that its job has finished."""
    dispatcher.job("FINISHED")
    upload = {"filename": "/storage/applications/42_app.py", "status": "success"}
    dispatcher.answers["POST /jars/upload"] = upload
    dispatcher.answers["POST /jars/42_app.py/run"] = {"jobid": JID}
    dispatcher.answers["DELETE /jars/42_app.py"] = {}
    return dispatcher


def uploaded(dispatcher: FakeDispatcher) -> tuple[str, bytes]:
    (request,) = [own for own in dispatcher.requests if own.path == "/jars/upload"]
    kind = request.headers["Content-Type"].encode()
    message = message_from_bytes(b"Content-Type: " + kind + b"\r\n\r\n" + request.body)
    (part,) = message.get_payload()  # type: ignore[misc]
    assert part.get_param("name", header="content-disposition") == "jarfile"  # type: ignore[union-attr]
    return part.get_filename(), part.get_payload(decode=True)  # type: ignore[union-attr, return-value]


def started_with(dispatcher: FakeDispatcher) -> dict[str, Any]:
    (request,) = [own for own in dispatcher.requests if own.path.endswith("/run")]
    return request.json  # type: ignore[no-any-return]


def test_program_is_sent_with_all_it_was_given(
    millpond: Command, accepting: FakeDispatcher, program: Path
) -> None:
    code, out, err = millpond(
        *("run", "-d", "-p", "3", "-s", "/saved/1", "-n", "-D", "a.b=c=d", "--master", "yarn"),
        *(str(program), "-x", "y z"),
    )
    assert (code, out) == (0, f"{JID}\n")
    assert f"running on {accepting.address} (MILLPOND_ADDRESS)" in err
    assert uploaded(accepting) == ("app.py", program.read_bytes())
    assert started_with(accepting) == {
        "programArgsList": ["-x", "y z"],
        "parallelism": 3,
        "savepointPath": "/saved/1",
        "allowNonRestoredState": True,
        "flinkConfiguration": {"a.b": "c=d", "millpond.master": "yarn"},
    }
    assert accepting.sent("DELETE") == ["/jars/42_app.py"], "the job has a copy"


def test_modules_beside_the_program_go_along(
    millpond: Command, accepting: FakeDispatcher, tmp_path: Path
) -> None:
    """As they are found without a cluster, too."""
    (tmp_path / "app.py").write_text("import json, helper\nfrom tools.deep import x\n")
    (tmp_path / "helper.py").write_text("import second\n")
    (tmp_path / "second.py").write_text("import app\n")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").touch()
    (tmp_path / "tools" / "deep.py").write_text("x = 1\n")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "given.py").touch()
    extra = str(tmp_path / "extra")
    code, _, err = millpond("run", "-d", "--py-files", extra, str(tmp_path / "app.py"))
    assert code == 0
    assert "also sending helper.py, tools, second.py" in err
    name, content = uploaded(accepting)
    assert name == "app.zip"
    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())
    modules = {"helper.py", "second.py", "tools/__init__.py", "tools/deep.py", "given.py"}
    assert names == {"__main__.py", *modules}


def test_program_alone_has_no_modules_beside_it(program: Path) -> None:
    assert local_modules(program) == []


def test_attached_run_prints_the_log_and_ends_as_the_job_does(
    millpond: Command, accepting: FakeDispatcher, program: Path
) -> None:
    job = accepting.answers[f"GET /jobs/{JID}"]
    accepting.answers[f"GET /jobs/{JID}"] = Steps([{**job, "state": "RUNNING"}, job])
    accepting.answers[f"GET /jobs/{JID}/log"] = Answer(b"1> 42\n")
    code, out, err = millpond("run", str(program))
    assert (code, out) == (0, "1> 42\n")
    assert f"job {JID}" in err


@pytest.mark.parametrize(("state", "text"), [("FAILED", "no such user"), ("CANCELED", "CANCELED")])
def test_attached_run_of_a_job_that_does_not_finish_fails(
    state: str, text: str, millpond: Command, accepting: FakeDispatcher, program: Path
) -> None:
    accepting.answers[f"GET /jobs/{JID}"]["state"] = state
    accepting.answers[f"GET /jobs/{JID}/exceptions"] = {
        "root-exception": "KeyError: no such user\n  in operator 'count'\n\tat org.apache.spark"
    }
    code, out, err = millpond("run", "--json", str(program))
    assert code == 1 and text in err and "org.apache" not in err
    assert json.loads(out) == {"jobid": JID, "state": state}


def test_interrupted_run_leaves_the_job_and_says_how_to_end_it(
    millpond: Command, accepting: FakeDispatcher, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepting.answers[f"GET /jobs/{JID}"]["state"] = "RUNNING"

    def interrupt(_: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "_new_text", interrupt)
    code, _, err = millpond("run", str(program))
    assert code == 130
    assert f"the job keeps running. To end it: millpond cancel {JID}" in err
    assert not accepting.sent("PATCH")


def test_run_outlasts_a_dispatcher_that_is_away_for_a_while(
    millpond: Command, accepting: FakeDispatcher, program: Path
) -> None:
    away = Answer({"errors": ["no leader"]}, 503)
    job = accepting.answers[f"GET /jobs/{JID}"]
    accepting.answers[f"GET /jobs/{JID}"] = Steps([away, {**job, "state": "RUNNING"}, away, job])
    assert millpond("run", str(program))[0] == 0


def test_refused_program_is_told_and_removed(
    millpond: Command, accepting: FakeDispatcher, program: Path
) -> None:
    problem = Answer({"errors": ["SyntaxError: line 3"]}, 400)
    accepting.answers["POST /jars/42_app.py/run"] = problem
    code, _, err = millpond("run", str(program))
    assert code == 1 and "SyntaxError: line 3" in err and "Traceback" not in err
    assert accepting.sent("DELETE") == ["/jars/42_app.py"]


def test_here_runs_in_this_process_although_there_is_a_cluster(
    millpond: Command,
    accepting: FakeDispatcher,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["millpond"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, out, err = millpond("run", "--here", str(program))
    assert (code, out, err) == (0, "it ran here\n", "")
    assert accepting.requests == []


def test_detached_run_without_a_dispatcher_says_how_to_start_one(
    millpond: Command, program: Path
) -> None:
    code, out, err = millpond("run", "-d", str(program))
    assert (code, out) == (3, "") and "millpond start-cluster" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--here", "-d"], "--here cannot be used together"),
        (["-p", "0"], "-p must be at least 1"),
        (["--py-files", "/nowhere.py"], "there is no file or folder /nowhere.py"),
        (["-D", "x"], "-D needs KEY=VALUE"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], text: str, millpond: Command, program: Path
) -> None:
    code, _, err = millpond("run", *arguments, str(program))
    assert code == 2 and text in err


def test_big_upload_is_sent_again_to_the_dispatcher_that_leads(
    millpond: Command, accepting: FakeDispatcher, program: Path
) -> None:
    program.write_bytes(b"#" * 300_000)
    with FakeDispatcher() as standby:

        def send_on(request: Request) -> Answer:
            return Answer({}, 307, {"location": f"{accepting.address}{request.path}"})

        standby.answers = {"POST /jars/upload": send_on, "POST /jars/42_app.py/run": send_on}
        assert millpond("run", "-d", "--address", standby.address, str(program))[0] == 0
    assert len(uploaded(accepting)[1]) == 300_000
