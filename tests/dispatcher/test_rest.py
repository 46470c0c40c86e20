"""REST of a real dispatcher process: programs in, states out, nothing broken by bad input (O1, O2). Jobs run
in their job managers without Spark here; tests/dispatcher/test_jobs.py has Spark."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.dispatcher import programs
from tests.dispatcher.programs import write_program
from tests.dispatcher.running import RunningDispatcher, dispatcher

DIRECT = ("-D", "millpond.executor=direct")
TOKEN = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDispatcher]:
    with dispatcher(tmp_path_factory.mktemp("storage"), *DIRECT) as own:
        yield own


@pytest.fixture(scope="module")
def without_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDispatcher]:
    with dispatcher(tmp_path_factory.mktemp("storage"), *DIRECT, "--no-token") as own:
        yield own


def test_a_program_that_is_uploaded_and_run_finishes(
    running: RunningDispatcher, tmp_path: Path
) -> None:
    jid = running.run(write_program(tmp_path, programs.BOUNDED), "one", "two words")
    job = running.await_state(jid, "FINISHED")
    assert job["name"] == "bounded" and job["end-time"] >= job["start-time"]
    log = running.http.get(f"/jobs/{jid}/log").text
    assert "arguments: ['one', 'two words']" in log and "100" in log
    assert running.get(f"/jobs/{jid}/status") == {"status": "FINISHED"}
    assert jid in [own["jid"] for own in running.get("/v1/jobs/overview")["jobs"]]
    assert running.get("/overview")["jobs-finished"] >= 1
    read = [vertex["metrics"]["write-records"] for vertex in job["vertices"]]
    assert 100 in read


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (programs.FAILING, "ZeroDivisionError"),
        (programs.BROKEN, "no_such_module"),
        (programs.WITHOUT_JOB, "without starting a job"),
        ("raise SystemExit(3)", "exited with 3"),
        ("def", "SyntaxError"),
    ],
)
def test_a_program_that_fails_says_why(
    running: RunningDispatcher, tmp_path: Path, text: str, reason: str
) -> None:
    """O2"""
    jid = running.run(write_program(tmp_path, text))
    running.await_state(jid, "FAILED")
    shown = running.get(f"/jobs/{jid}/exceptions")
    assert reason in shown["exceptionHistory"]["entries"][0]["stacktrace"]


def test_a_program_that_hangs_before_its_job_can_be_cancelled(
    running: RunningDispatcher, tmp_path: Path
) -> None:
    jid = running.run(write_program(tmp_path, "import threading; threading.Event().wait()"))
    running.await_state(jid, "INITIALIZING")
    assert running.http.patch(f"/jobs/{jid}?mode=cancel").status_code == 202
    running.await_state(jid, "CANCELED")
    assert running.http.patch(f"/jobs/{jid}").status_code == 409


def test_a_module_of_an_archive_can_be_run(running: RunningDispatcher, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mine/__init__.py", "")
        archive.writestr("mine/main.py", programs.BOUNDED)
    application = running.upload(path)
    answer = running.http.post(f"/jars/{application}/run", json={"entryClass": "mine.main"})
    running.await_state(answer.json()["jobid"], "FINISHED")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # it leaves files open
def test_a_client_library_made_for_flink_works(
    without_token: RunningDispatcher, tmp_path: Path
) -> None:
    """O1: flink-rest-client, from PyPI, which knows nothing of Millpond, nor of tokens."""
    from flink_rest_client import FlinkRestClient

    running = without_token
    host, port = running.address.removeprefix("http://").split(":")
    client = FlinkRestClient.get(host=host, port=port)
    program = write_program(tmp_path, programs.BOUNDED, "theirs.py")
    jid = client.jars.upload_and_run(str(program), arguments={"name": "value"}, parallelism=1)
    running.await_state(jid, "FINISHED")
    assert "['--name', 'value']" in running.http.get(f"/jobs/{jid}/log").text
    assert client.overview()["slots-total"] >= 1 and client.config()["flink-version"]
    assert jid in [own["id"] for own in client.jobs.all()]
    assert jid in [own["jid"] for own in client.jobs.overview()]
    assert "totalNumberOfCheckpoints" in client.jobs.metric_names()
    assert client.jobs.metrics(["numRestarts"])["numRestarts"]["max"] == 0
    job = client.jobs
    assert job.get(jid)["state"] == "FINISHED"
    assert job.get_config(jid)["execution-config"]["job-parallelism"] == 1
    assert job.get_exceptions(jid)["exceptionHistory"]["entries"] == []
    assert (
        job.get_execution_result(jid)["job-execution-result"]["application-status"] == "SUCCEEDED"
    )
    assert job.get_metrics(jid, ["numRestarts"]) == {"numRestarts": "0"}
    assert len(job.get_plan(jid)["nodes"]) == len(job.get_vertex_ids(jid)) >= 1
    assert job.get_accumulators(jid)["job-accumulators"] == []
    assert job.get_checkpointing_configuration(jid)["mode"] == "exactly_once"
    (newest, *_) = job.get_checkpoint_ids(jid)
    assert job.get_checkpoint_details(jid, newest)["status"] == "COMPLETED"
    vertex = job.get_vertex(jid, job.get_vertex_ids(jid)[0])
    assert vertex.details()["parallelism"] == 1
    assert vertex.backpressure()["status"] == "ok"
    assert vertex.metrics(["0.numRecordsOut"]) == {"0.numRecordsOut": "100"}
    assert (
        vertex.subtasks.metrics(["numRecordsOut"], subtask_ids=[0])["numRecordsOut"]["sum"] == 100
    )
    assert vertex.subtasktimes()["subtasks"]
    assert vertex.watermarks()[0]["id"] == "0.currentInputWatermark"
    assert client.taskmanagers.all() == []
    with pytest.raises(Exception, match="FINISHED"):
        job.terminate(jid)
    (application,) = [own["id"] for own in client.jars.all()["files"] if own["name"] == "theirs.py"]
    assert client.jars.delete(application)


def test_uploaded_programs_are_listed_and_removed(
    running: RunningDispatcher, tmp_path: Path
) -> None:
    application = running.upload(write_program(tmp_path, programs.BOUNDED, "mine.py"))
    (listed,) = [own for own in running.get("/jars")["files"] if own["id"] == application]
    assert listed["name"] == "mine.py" and listed["uploaded"] > 0
    assert running.http.delete(f"/jars/{application}").status_code == 200
    assert running.http.delete(f"/jars/{application}").status_code == 404
    assert running.http.post(f"/jars/{application}/run").status_code == 404


def test_a_cluster_tells_about_itself(running: RunningDispatcher) -> None:
    overview = running.get("/overview")
    assert overview["slots-total"] >= 1 and overview["flink-version"].startswith("2.3.0")
    assert running.get("/config")["features"]["web-submit"]
    assert {"key": "millpond.executor", "value": "direct"} in running.get("/jobmanager/config")
    assert "flink_jobmanager_numRunningJobs" in running.http.get("/metrics").text
    documentation = running.http.get("/docs", follow_redirects=False)
    assert "#/api" in str(documentation.headers["location"])
    assert "/jobs/{jid}" in running.get("/openapi.json")["paths"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/jobs/" + "0" * 32, None, 404),
        ("GET", "/jobs/../../etc/passwd", None, 404),
        ("GET", "/jobs/%2e%2e%2f%2e%2e", None, 404),
        ("GET", "/jobs/notanid", None, 400),
        ("GET", "/static/..%2f..%2fdispatcher/server.py", None, 404),
        ("DELETE", "/jars/..%2F..%2Fjobs", None, 404),
        ("POST", "/jars/x/run", b'{"programArgs": "\\""}', 400),
        ("POST", "/jars/x/run", b"{not json", 400),
        ("POST", "/jars/x/run", b'{"parallelism": "many"}', 400),
        ("POST", "/savepoint-disposal", b"{}", 400),
        ("PUT", "/jobs/overview", None, 405),
        ("GET", "/nothing", None, 404),
    ],
)
def test_bad_requests_get_a_clear_answer(
    running: RunningDispatcher, method: str, path: str, body: bytes | None, status: int
) -> None:
    headers = {"content-type": "application/json"}
    answer = running.http.request(method, path, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    "name", ["../x.py", "x.sh", "..", "a/b.py", "\u0000.py", ".py", "x" * 200 + ".py"]
)
def test_only_files_with_an_ordinary_name_are_taken(running: RunningDispatcher, name: str) -> None:
    answer = running.http.post("/jars/upload", files={"jarfile": (name, b"x")})
    assert answer.status_code == 400
    if name == "../x.py":
        assert not [own for own in running.get("/jars")["files"] if own["name"] == "x.py"]


def test_large_bodies_are_refused(running: RunningDispatcher) -> None:
    body = b'{"programArgs": "' + b"x" * (2 << 20) + b'"}'
    headers = {"content-type": "application/json"}
    answer = running.http.post("/jars/x/run", content=body, headers=headers)
    assert answer.status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * (1 << 16)

    answer = running.http.post("/jars/x/run", content=pieces(), headers=headers)  # without a length
    assert answer.status_code != 401 and 400 <= answer.status_code < 500


@pytest.mark.parametrize("kind", ["running", "without_token"])
def test_pages_of_other_sites_cannot_do_anything(kind: str, request: pytest.FixtureRequest) -> None:
    running: RunningDispatcher = request.getfixturevalue(kind)
    files = {"jarfile": ("x.py", b"x")}
    foreign = running.http.post(
        "/jars/upload", files=files, headers={"Origin": "http://evil.example"}
    )
    assert foreign.status_code == 403
    rebound = running.http.get("/jobs", headers={"Host": "evil.example:8081"})
    assert rebound.status_code == 403
    own = running.http.get("/jobs", headers={"Origin": running.address})
    assert own.status_code == 200


def test_a_savepoint_is_disposed_of_and_nothing_else_is(
    running: RunningDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "precious").mkdir()
    answer = running.http.post(
        "/savepoint-disposal", json={"savepoint-path": str(tmp_path / "precious")}
    )
    request_id = answer.json()["request-id"]
    from tests.dispatcher.running import eventually

    def done() -> dict[str, object] | None:
        shown = running.get(f"/savepoint-disposal/{request_id}")
        return shown if shown["status"]["id"] == "COMPLETED" else None

    assert "failure-cause" in eventually(done, "the disposal")["operation"]
    assert (tmp_path / "precious").is_dir()


def test_with_a_token_nobody_gets_in_without_it(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    with dispatcher(tmp_path / "storage", "--token-file", str(token_file)) as own:
        assert own.http.get("/jobs").status_code == 401
        wrong = own.http.get("/jobs", headers={"Authorization": "Bearer wrong"})
        assert wrong.status_code == 401
        right = own.http.get("/jobs", headers={"Authorization": f"Bearer {TOKEN}"})
        assert right.status_code == 200
        assert own.http.get("/").status_code == 200


def test_a_dispatcher_makes_a_token_that_stays_and_that_others_of_the_storage_share(
    tmp_path: Path,
) -> None:
    """O9. Who knows nothing of it gets the dashboard's files, and nothing else."""
    storage = tmp_path / "storage"
    with dispatcher(storage, *DIRECT) as first, dispatcher(storage, *DIRECT) as second:
        assert first.token is not None and len(first.token) >= 32
        assert second.token == first.token
        assert stat.S_IMODE((storage / "token").stat().st_mode) == 0o600
        for own in (first, second):
            assert own.http.get("/jobs").status_code == 200
            assert httpx.get(f"{own.address}/").status_code == 200
            for method, path in (
                ("GET", "/jobs"),
                ("GET", "/openapi.json"),
                ("POST", "/jars/upload"),
            ):
                assert httpx.request(method, own.address + path).status_code == 401
        assert first.process.stdout is not None
        said = first.process.stdout.readline()
        assert str(storage / "token") in said and first.token not in said, (
            "logs are not for secrets"
        )
    with dispatcher(storage, *DIRECT) as third:
        assert third.token == first.token


def test_without_a_token_only_if_it_is_asked_for_and_only_on_this_machine(
    without_token: RunningDispatcher, tmp_path: Path
) -> None:
    assert httpx.get(f"{without_token.address}/jobs").status_code == 200
    command = [sys.executable, "-m", "millpond.dispatcher", "--storage", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--port", "0", "--host", "0.0.0.0", "--no-token"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1 and "--no-token" in ended.stderr
    with dispatcher(tmp_path, "--host", "0.0.0.0", "--no-token", "--allow-uploads") as own:
        assert httpx.get(f"{here(own)}/jobs").status_code == 200


def test_a_token_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o644)
    ended = subprocess.run(
        [sys.executable, "-m", "millpond.dispatcher", "--storage", str(tmp_path), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1 and "open to others" in ended.stderr and TOKEN not in ended.stderr


def here(own: RunningDispatcher) -> str:
    """Its address on this machine, if it listens on all."""
    return f"http://127.0.0.1:{own.address.rsplit(':', 1)[1]}"


def test_beyond_this_machine_uploads_are_off_unless_asked_for(tmp_path: Path) -> None:
    files = {"jarfile": ("x.py", b"x")}
    with dispatcher(tmp_path / "one", "--host", "0.0.0.0") as own:
        assert httpx.post(f"{here(own)}/jars/upload", files=files).status_code == 401
        assert own.http.post(f"{here(own)}/jars/upload", files=files).status_code == 403
    with dispatcher(tmp_path / "two", "--host", "0.0.0.0", "--allow-uploads") as own:
        assert httpx.post(f"{here(own)}/jars/upload", files=files).status_code == 401
        assert own.http.post(f"{here(own)}/jars/upload", files=files).status_code == 200


def test_tls_is_spoken_if_there_is_a_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    arguments = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with dispatcher(tmp_path / "storage", *arguments) as own:
        assert own.address.startswith("https://")
        import ssl

        context = ssl.create_default_context(cafile=str(certificate))
        headers = {"Authorization": f"Bearer {own.token}"}
        answer = httpx.get(f"{own.address}/overview", verify=context, headers=headers)
        assert answer.status_code == 200


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "millpond.dispatcher",
                "--storage",
                str(tmp_path),
                "--port",
                port,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == 1 and port in ended.stderr and "--port" in ended.stderr


def test_jobs_are_still_there_when_a_dispatcher_is_started_again(tmp_path: Path) -> None:
    """O2"""
    program = write_program(tmp_path, programs.BOUNDED)
    with dispatcher(tmp_path / "storage", *DIRECT) as own:
        jid = own.run(program)
        own.await_state(jid, "FINISHED")
        own.process.send_signal(signal.SIGKILL)
    with dispatcher(tmp_path / "storage", *DIRECT) as own:
        assert own.get(f"/jobs/{jid}")["state"] == "FINISHED"


def test_a_dispatcher_can_be_shut_down_by_rest(tmp_path: Path) -> None:
    with dispatcher(tmp_path / "storage") as own:
        assert own.http.delete("/cluster").status_code == 200
        assert own.process.wait(30) == 0
