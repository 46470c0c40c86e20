"""Kafka -> frequency capping -> Redis, while processes die: Redis is as the reference says."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.capping import reference
from tests.capping.test_command import START, views
from tests.servers import KafkaServer, RedisServer, wait_until
from tests.slot.processes import slots_of

pytestmark = pytest.mark.spark
RULES = [{"name": "ads", "level": "ad", "limit": 3, "window": "12h"}]
SENT = 6000


class Live:
    """The product as people run it, and started again whenever it dies."""

    def __init__(self, folder: Path, kafka: KafkaServer, redis_server: RedisServer) -> None:
        self.folder = folder
        rules = folder / "rules.yaml"
        rules.write_text(json.dumps({"rules": RULES}))
        self._arguments = [
            *("run", "--input", f"kafka://{kafka.servers}/views", "--rules", str(rules)),
            *("--redis", redis_server.url, "--checkpoint", str(folder / "checkpoint")),
            *("--master", "local[2]", "--parallelism", "2", "-D", "millpond.batch.max-records=400"),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millpond", "capping", *self._arguments, *more],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def epochs(self) -> int:
        """The newest batch that is complete; -1 if none."""
        folder = self.folder / "checkpoint" / "frequency-capping" / "epochs"
        found = [int(path.stem) for path in folder.glob("*.epoch")] if folder.exists() else []
        return max(found, default=-1)

    def await_progress(self, batches: int) -> None:
        goal = self.epochs() + batches
        wait_until(lambda: self.epochs() >= goal or self._has_ended(), "no progress", 120)
        assert self.epochs() >= goal, self.log()

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def log(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not slots_of(self.folder), "slots outlive their job")

    def kill_slot(self) -> None:
        for pid in slots_of(self.folder)[:1]:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_and_nothing_counted_twice(
    tmp_path: Path, redis_server: RedisServer, seed: int
) -> None:
    """E42, E43, P2: driver, slot, Redis and broker are killed while views come."""
    kafka = KafkaServer(tmp_path / "kafka")
    kafka.start()
    kafka.create("views", 3)
    live = Live(tmp_path, kafka, redis_server)
    records = sorted(views(seed, 0, 30, SENT), key=lambda record: record["log_time"])
    enough = threading.Event()

    def send() -> None:
        chance = random.Random(seed)
        for begin in range(0, SENT, 200):
            some = records[begin : begin + 200]
            data = [(chance.randrange(3), json.dumps(record).encode()) for record in some]
            kafka.send("views", data)
            enough.wait(0.1)

    sender = threading.Thread(target=send)
    try:
        live.start()
        sender.start()
        live.await_progress(2)
        live.kill_slot()
        live.await_progress(2)
        redis_server.kill()
        redis_server.start()
        live.await_progress(2)
        live.kill()
        live.start()
        live.await_progress(2)
        kafka.kill()
        kafka.start()
        live.await_progress(1)
        enough.set()
        sender.join()
        live.kill()
        live.start("--until-end")
        assert live.process is not None
        assert live.process.wait(180) == 0, live.log()
    finally:
        enough.set()
        if live.process is not None and live.process.poll() is None:
            live.kill()
        kafka.stop()
    newest = max(record["log_time"] for record in records)
    expected: dict[str, Any] = reference.capped_at(records, RULES, newest)
    assert redis_server.sets() == {f"cap:{{{user}}}": own for user, own in expected.items()}
    assert len(expected) > 20, START
