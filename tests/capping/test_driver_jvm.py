"""`millpond capping run` when Spark's driver process dies under it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.capping import reference
from tests.capping.live import Live
from tests.capping.test_command import RULES, views
from tests.faults.jvms import kill_jvm
from tests.servers import RedisServer, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.faults]


def test_capping_goes_on_in_the_same_process_after_its_jvm_was_killed(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """E42, P2: killed while the job waits for input; caps of later views come, and none is wrong."""
    source = tmp_path / "input"
    source.mkdir()
    records = sorted(views(1, 0, 48, 2000), key=lambda record: record["log_time"])

    def write(name: str, begin: int, end: int) -> None:
        lines = [json.dumps(record) + "\n" for record in records[begin:end]]
        (tmp_path / name).write_text("".join(lines))
        (tmp_path / name).rename(source / name)

    local_dir = ("-D", f"spark.local.dir={tmp_path}")  # a JVM that is killed leaves files there
    live = Live(tmp_path / "live", str(source), redis_server, RULES, *local_dir)
    try:
        write("a.jsonl", 0, 1000)
        live.start()
        assert live.process is not None
        wait_until(lambda: bool(redis_server.sets()), "no caps", 120)
        jvm = kill_jvm(live.process.pid)
        wait_until(lambda: f"process {jvm}) was killed by SIGKILL" in live.log(), "no error", 120)
        write("b.jsonl", 1000, 2000)
        live.await_progress(1)
        live.interrupt()
        now_ms = live.finish()
    finally:
        live.end()
    expected = reference.capped_at(records, RULES, now_ms)
    assert redis_server.sets() == {f"cap:{{{user}}}": own for user, own in expected.items()}
    assert len(expected) > 20
