"""A running cluster, seen by another user of the machine who has neither token nor secret (O9)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.cluster.record import read_cluster
from millpond.dashboard import static_folder
from tests import stranger
from tests.open_doors import (
    Listener,
    command_line,
    is_private,
    listeners,
    process_tree,
    unix_sockets,
    written_files,
)
from tests.servers import wait_until
from tests.test_docs import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

PROGRAM = """
import sys
from millpond.common import Duration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable("counts")
        self.count = context.get_state(descriptor)

    def process_element(self, line, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{line} {self.count.value()}"


env = StreamExecutionEnvironment.get_execution_environment()
source = (
    FileSource.for_record_stream_format(StreamFormat.text_line_format(), sys.argv[1])
    .monitor_continuously(Duration.of_millis(100))
    .build()
)
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
lines.key_by(lambda line: line, key_type=Types.STRING()).process(Count()).uid("count").print()
env.execute("counting")
"""

# What Spark's and Millpond's pages have, and what a browser asks for.
PATHS = [
    *("/", "/json/", "/json/applications/", "/api/v1/applications", "/app/", "/log/", "/logPage/"),
    *("/metrics/json/", "/metrics/master/json/", "/metrics/applications/json/", "/environment/"),
    *("/metrics/master/prometheus/", "/metrics/executors/prometheus/", "/jobs/", "/executors/"),
    *("/overview", "/jobs", "/jobs/overview", "/jars", "/config", "/jobmanager/config", "/metrics"),
    *("/openapi.json", "/docs", "/v1/overview", "/taskmanagers", "/static/main.js"),
    *("/static/webui.css", "/v1/submissions/status/driver-1", "/v1/submissions/readyz"),
    *("/app/kill/", "/driver/kill/", "/workers/kill/", "/proxy/x/", "/static/../cluster.json"),
]
# Spark: only with the secret. Py4J, on the JVM's side and on Python's: only with the token.
REFUSALS = re.compile(
    r".*Expected SaslMessage|!xsAuthentication error|!zspy4j.Py4JException: Unknown command|!xn$",
    re.DOTALL,
)
FOREIGN = "Origin: http://elsewhere.example\r\n"


@dataclass(frozen=True)
class Doors:
    """What a cluster with a job that runs has, and what strangers got from it."""

    ports: list[Listener]
    sockets: list[str]
    files: list[str]
    command_lines: list[str]
    secrets: list[str]
    answers: list[tuple[str, int, str, str]]
    opened: list[str]
    user: int


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's: what keeps strangers out must be the cluster."""
    with tempfile.TemporaryDirectory(prefix="millpond-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millpond", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def get(path: str, header: str = "") -> str:
    return f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{header}\r\n"


def submission(folder: Path, header: str = "") -> str:
    """A program for Spark's submission server."""
    body = json.dumps(
        {
            "action": "CreateSubmissionRequest",
            "appArgs": [str(folder / "stolen")],
            "appResource": "",
            "clientSparkVersion": "4.3.0",
            "environmentVariables": {},
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "sparkProperties": {
                "spark.app.name": "strange",
                "spark.submit.deployMode": "cluster",
                "spark.master": "spark://127.0.0.1:7077",
            },
        }
    )
    return (
        f"POST /v1/submissions/create HTTP/1.0\r\nHost: 127.0.0.1\r\n{header}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )


def spark_message(body: bytes = b"let me in") -> str:
    """A request to Spark's own servers without a handshake: length, kind (3: request), number, body."""
    content = b"\x03" + (1).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
    return ((8 + len(content)).to_bytes(8, "big") + content).decode("latin-1")


def py4j_calls() -> list[str]:
    """Calls of functions that a driver gives to its JVM, and of the JVM by its driver."""
    calls = [f"c\n{name}\ncall\ni1\ne\n" for name in ("p0", "p1", "t", "GATEWAY_SERVER")]
    return [*calls, "m\nd\np0\ne\n", "r\nu\njava.lang.System\nrj\ne\n"]


@pytest.fixture(scope="module")
def doors(open_folder: Path) -> Iterator[Doors]:
    home, lines = open_folder / "home", open_folder / "lines"
    lines.mkdir()
    (open_folder / "counting.py").write_text(PROGRAM)
    before = dict(os.environ)
    os.environ |= {"MILLPOND_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    os.environ.pop("SPARK_CONF_DIR", None)
    try:
        size = ("--workers", "1", "--cores", "1", "--memory", "1g")
        run("start-cluster", "--port", "0", *size)
        try:
            jid = run("run", "-d", str(open_folder / "counting.py"), str(lines)).strip()
            log = home / "storage" / "jobs" / jid / "log"
            feed(lines, log, 1)
            yield look(open_folder, home)
            feed(lines, log, 2)  # what strangers do does not disturb the job
        finally:
            run("stop-cluster")
    finally:
        os.environ.clear()
        os.environ.update(before)


def feed(lines: Path, log: Path, count: int) -> None:
    """One more line, and the job's answer to it."""
    aside = lines.with_name("aside")
    aside.write_text("ann\n")
    aside.rename(lines / f"{count}.txt")

    def answered() -> bool:
        return log.exists() and f"ann {count}\n" in log.read_text()

    wait_until(answered, f"ann {count} is not printed", 600)


def look(folder: Path, home: Path) -> Doors:
    record = read_cluster(home)
    assert record is not None
    tree = process_tree(own.pid for own in record.processes)
    ports, sockets = listeners(tree), unix_sockets(tree)
    conf = home / "spark" / "conf"
    secret_files = [conf / "secret", conf / "page-key", home / "token"]
    files = [*written_files(tree), *map(str, (home, home / "storage", conf, *secret_files))]
    work: dict[str, Any] = {
        "ports": [[own.host, own.port] for own in ports],
        "files": files,
        "sockets": sockets,
        "requests": [
            *map(get, PATHS),
            *(get(path, FOREIGN) for path in ("/", "/json/", "/overview")),
            *(submission(folder), submission(folder, FOREIGN)),
        ],
        "messages": [submission(folder), spark_message(), *py4j_calls()],
    }
    done = subprocess.run(
        [sys.executable, stranger.__file__],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    found = json.loads(done.stdout)
    secrets = [path.read_text().strip() for path in secret_files]
    return Doors(
        ports,
        sockets,
        files,
        [command_line(pid) for pid in tree],
        secrets,
        [(host, port, request, answer) for host, port, request, answer in found["answers"]],
        found["opened"],
        found["user"],
    )


def test_all_processes_of_the_cluster_are_looked_at(doors: Doors) -> None:
    """Else nothing of what follows would mean anything."""
    owners = " ".join(own.owner for own in doors.ports)
    for part in ("master.Master", "worker.Worker", "SparkSubmit", "ExecutorBackend"):
        assert part in owners, part
    for part in ("millpond.dispatcher ", '"queryable_host"'):
        assert part in owners, part
    assert "dispatcher.job_manager" not in owners, "nobody calls the driver of a job"
    assert any("millpond-" in path for path in doors.sockets), "those of slots"
    assert os.getuid() != 0 or doors.user != 0


def test_everything_listens_on_this_machine_only(doors: Doors) -> None:
    assert [str(own) for own in doors.ports if not own.is_loopback] == []


def test_strangers_are_refused_by_everything_that_listens(doors: Doors) -> None:
    owners = {own.port: own.owner for own in doors.ports}
    problems: list[str] = []
    for _, port, request, answer in doors.answers:
        problem = is_more_than_a_refusal(request, answer)
        if problem and not is_dashboard(owners[port], request, answer):
            problems.append(f"{owners[port][-150:]}: {request[:60]!r} -> {answer[:200]!r}")
    assert not problems, "\n".join(problems)


def test_spark_wants_its_secret_before_anything_else(doors: Doors) -> None:
    """Master, worker, driver and executor: each has a port that speaks Spark's own protocol."""
    wanting = {port for _, port, _, answer in doors.answers if "Expected SaslMessage" in answer}
    owners = [own.owner for own in doors.ports if own.port in wanting]
    for part in ("master.Master", "worker.Worker", "SparkSubmit", "ExecutorBackend"):
        assert any(part in owner for owner in owners), part


def test_nobody_serves_submissions_to_spark(doors: Doors) -> None:
    """Spark would run them as the user of the cluster, without asking for the secret."""
    assert 6066 not in [own.port for own in doors.ports if "master.Master" in own.owner]


def test_sockets_and_files_are_private(doors: Doors) -> None:
    assert doors.opened == []
    assert [path for path in doors.sockets if path.startswith("@")] == []
    assert [path for path in (*doors.files, *doors.sockets) if not is_private(path)] == []


def test_secrets_are_on_no_command_line(doors: Doors) -> None:
    assert len(set(doors.secrets)) == 3
    for secret in doors.secrets:
        assert secret and not [own for own in doors.command_lines if secret in own]


def is_more_than_a_refusal(request: str, answer: str) -> bool:
    if not answer.startswith("HTTP/"):
        return bool(answer) and not REFUSALS.match(answer)
    status, _, rest = answer.partition("\r\n")
    body = rest.partition("\r\n\r\n")[2]
    code = int(status.split()[1])
    if code in (401, 403):
        return False
    return code not in (400, 404, 405) or bool(
        re.search(r"/(tmp|home|root)/|app-\d|[0-9a-f]{32}", body)
    )


def is_dashboard(owner: str, request: str, answer: str) -> bool:
    """Its files have no data, and are free: they ask for the token."""
    found = re.match(r"GET /(?:static/([\w.]+))? ", request)
    if "millpond.dispatcher " not in owner or found is None:
        return False
    file = static_folder() / (found.group(1) or "index.html")
    body = answer.partition("\r\n\r\n")[2]
    return file.exists() and body == file.read_bytes().decode("latin-1")
