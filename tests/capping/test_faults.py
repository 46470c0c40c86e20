"""Kafka -> frequency capping -> Redis, while processes die: Redis is as the reference says.

More seeds: bin/soak.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capping import reference
from tests.capping.live import Live
from tests.capping.test_command import views
from tests.servers import KafkaServer, RedisServer
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.faults]
RULES = [
    {"name": "ads", "level": "ad", "limit": 3, "window": "12h"},
    {"name": "campaigns", "level": "campaign", "limit": 5, "window": "6h", "cool_down": "7h"},
]
SENT = 6000


def run_with_faults(folder: Path, redis_server: RedisServer, seed: int, on_cluster: bool) -> None:
    """Each kind of process is killed once, or twice; order and moments are of the seed. On a cluster only
    what is other there: executors and their slots."""
    if not on_cluster:
        _run(folder, redis_server, seed, None)
        return
    with standalone_cluster(folder / "cluster") as master:
        _run(folder, redis_server, seed, master)


def _run(folder: Path, redis_server: RedisServer, seed: int, master: str | None) -> None:
    chance = random.Random(seed)
    kafka = KafkaServer(folder / "kafka")
    kafka.start()
    kafka.create("views", 3)
    settings = ["-D", "millpond.batch.max-records=300"]
    if master is not None:
        settings += ["-D", "spark.executor.memory=512m", "-D", "spark.task.maxFailures=8"]
    place = f"kafka://{kafka.servers}/views"
    live = Live(folder, place, redis_server, RULES, *settings, master=master or "local[2]")
    records = sorted(views(seed, 0, 30, SENT), key=lambda record: record["log_time"])
    no_more_faults = threading.Event()

    def send() -> None:
        for begin in range(0, SENT, 200):
            some = records[begin : begin + 200]
            data = [(random.Random(begin + n).randrange(3), own) for n, own in enumerate(some)]
            kafka.send("views", [(part, json.dumps(own).encode()) for part, own in data])
            no_more_faults.wait(0.7)  # so that views come while processes die

    def restart_driver() -> None:
        live.kill()
        live.start()

    def restart_redis() -> None:
        redis_server.kill()
        no_more_faults.wait(chance.choice([0.0, 0.5]))
        redis_server.start()

    def restart_broker() -> None:
        kafka.kill()
        kafka.start()

    faults: list[Callable[[], None]] = [live.kill_executor, live.kill_slot]
    if master is None:
        faults = [live.kill_slot, restart_driver, restart_redis, restart_broker]
    faults.append(chance.choice(faults))
    chance.shuffle(faults)
    sender = threading.Thread(target=send)
    try:
        live.start()
        live.await_progress(1)
        sender.start()
        for fault in faults:
            live.await_progress(chance.randrange(1, 3))
            no_more_faults.wait(chance.random())
            fault()
        live.await_progress(1)
        no_more_faults.set()
        sender.join()
        live.kill()
        now_ms = live.finish()
    finally:
        no_more_faults.set()
        if sender.is_alive():
            sender.join()
        live.end()
        kafka.stop()
    assert now_ms >= max(record["log_time"] for record in records)
    expected: dict[str, Any] = reference.capped_at(records, RULES, now_ms)
    assert redis_server.sets() == {f"cap:{{{user}}}": own for user, own in expected.items()}
    assert len(expected) > 20
    assert live.letters() == []


@pytest.mark.parametrize(("seed", "on_cluster"), [(1, False), (2, True)])
def test_nothing_is_lost_and_nothing_counted_twice(
    tmp_path: Path, redis_server: RedisServer, seed: int, on_cluster: bool
) -> None:
    """E42, E43, P2: driver, slot, executor, Redis and broker are killed while views come."""
    run_with_faults(tmp_path, redis_server, seed, on_cluster)
