"""The command line with a real dispatcher; jobs are run by the direct executor, without Spark (O4, O8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.cluster.record import read_cluster
from tests.cli.conftest import Command
from tests.servers import wait_until

DIRECT = ("-D", "millpond.executor=direct", "-D", "millpond.batch.max-records=10")
HEAD = (
    "import sys, time\n"
    "from millpond.datastream import StreamExecutionEnvironment\n"
    "env = StreamExecutionEnvironment.get_execution_environment()\n"
)


@pytest.fixture
def cluster(home: Path, millpond: Command) -> Iterator[None]:
    code, _, err = millpond("start-cluster", "--local", "--port", "0")
    assert code == 0, err
    yield
    if read_cluster(home) is not None:
        millpond("stop-cluster")


def write(path: Path, text: str) -> str:
    path.write_text(HEAD + text)
    return str(path)


def job(millpond: Command, name: str) -> dict[str, Any]:
    found = json.loads(millpond("list", "-a", "--json")[1])
    return next((own for own in found if own["name"] == name), {"state": None})


def test_programs_finish_or_fail_as_their_jobs_do(
    cluster: None, millpond: Command, tmp_path: Path
) -> None:
    good = write(
        tmp_path / "good.py",
        "import helper\n"
        "env.from_collection([1, int(sys.argv[1])]).map(helper.times).print()\n"
        "env.execute('numbers')\n",
    )
    (tmp_path / "helper.py").write_text("def times(n):\n    return n * 21\n")
    code, out, err = millpond("run", *DIRECT, good, "2")
    assert (code, out) == (0, "21\n42\n"), err
    assert "also sending helper.py" in err
    assert json.loads(millpond("info", "numbers", "--json")[1])["job"]["state"] == "FINISHED"
    assert millpond("logs", "numbers", "-n", "1")[1] == "42\n"
    assert millpond("logs", "numbers", "-f")[1] == "21\n42\n"
    assert len(json.loads(millpond("checkpoint", "numbers", "--json")[1])) >= 1
    assert millpond("cancel", "numbers")[0] == 1

    bad = write(
        tmp_path / "bad.py",
        "env.from_collection([0]).map(lambda n: 1 / n).print()\nenv.execute()\n",
    )
    code, out, err = millpond("run", *DIRECT, bad)
    assert code == 1
    assert "in operator 'Map'" in out and "ended: FAILED: ZeroDivisionError" in err


def test_jobs_of_a_stopped_cluster_go_on_when_it_is_started_again(
    cluster: None, home: Path, millpond: Command, tmp_path: Path
) -> None:
    """(O2) And no process of them is left meanwhile."""
    slow = write(
        tmp_path / "slow.py",
        "env.from_sequence(0, 10**6).map(lambda n: time.sleep(0.01) or n).print()\n"
        "env.execute('slow')\n",
    )
    code, out, _ = millpond("run", "-d", *DIRECT, slow)
    jid = out.strip()
    assert code == 0 and len(jid) == 32
    wait_until(lambda: job(millpond, "slow")["state"] == "RUNNING", "it does not run")
    report = home / "storage" / "jobs" / jid / "report.json"
    first = json.loads(report.read_text())["pid"]
    code, _, err = millpond("stop-cluster")
    assert code == 0 and "1 job will resume" in err
    assert not Path(f"/proc/{first}").exists()
    assert millpond("list", "--address", "http://127.0.0.1:1")[0] == 3
    assert millpond("start-cluster", "--local", "--port", "0")[0] == 0
    wait_until(lambda: job(millpond, "slow")["state"] == "RUNNING", "it does not go on")
    assert json.loads(report.read_text())["pid"] != first
    code, out, _ = millpond("cancel", jid[:8])
    assert (code, out) == (0, f"slow ({jid}): CANCELED\n")
