"""From Kafka to Redis at a fixed rate: how long from the timestamp of the view that makes the limit full
until Redis has the member. Redis tells by its keyspace events, so nothing is polled.

Views are sent when they are due, whether or not the job keeps up. Every user sees one ad.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy

from bench.capping import product_data as data
from bench.capping.product_systems import Place, System
from bench.capping.systems import Workshop

RATE = 10_000
SECONDS = 60
WARM_UP_S = 20
_TICK_S = 0.01
_USERS = RATE * (SECONDS + WARM_UP_S) // 8  # of whom most see their ad five times
_START_TIMEOUT_S = 180
_ROOT = Path(__file__).parent.parent.parent


def measure(workshop: Workshop, system: System, place: Place, redis: Any) -> dict[str, Any]:
    """`redis`: a client. The topic is there, and empty."""
    redis.flushall()
    redis.config_set("notify-keyspace-events", "Ks")
    capped = _Capped(redis)
    capped.start()
    with (place.folder / "live.log").open("wb") as log:
        process = subprocess.Popen(
            system.command(workshop, place), stdout=log, stderr=log, cwd=_ROOT, env=os.environ
        )
        try:
            _await_job(place, capped, process)
            sent_ms = _send(place)
            _await_caps(sent_ms, capped)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            if process.poll() is None:
                process.kill()
            capped.stop()
    first_ms = min(sent_ms.values())
    steady = [
        capped.at_ms[user] - sent
        for user, sent in sent_ms.items()
        if sent > first_ms + WARM_UP_S * 1000 and user in capped.at_ms
    ]
    missing = sum(user not in capped.at_ms for user in sent_ms)
    shares = {f"p{p}_ms": float(numpy.percentile(steady, p)) for p in (50, 90, 99, 100)}
    return {"rate": RATE, "caps": len(steady), "missing": missing, **shares}


class _Capped(threading.Thread):
    """Notes when keys of users came to be. `at_ms`: user -> when."""

    def __init__(self, redis: Any) -> None:
        super().__init__(daemon=True)
        self.at_ms: dict[str, float] = {}
        self._events = redis.pubsub()
        self._events.psubscribe("__keyspace@0__:cap:*")
        self._done = False

    def run(self) -> None:
        while not self._done:
            event = self._events.get_message(timeout=0.5)
            if event is not None and event["type"] == "pmessage" and event["data"] == "sadd":
                user = event["channel"].partition("{")[2].rstrip("}")
                self.at_ms.setdefault(user, time.time() * 1000)

    def stop(self) -> None:
        self._done = True
        self.join()
        self._events.close()


def _producer(place: Place) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": place.servers, "linger.ms": 2})


def _await_job(place: Place, capped: _Capped, process: subprocess.Popen[bytes]) -> None:
    """Until views of a first user, one after the other, have made it to Redis."""
    producer = _producer(place)
    for attempt in range(_START_TIMEOUT_S * 5):
        for partition in range(data.PARTITIONS):
            value = data.record("first", partition, int(time.time() * 1000), "DE")
            producer.produce(place.topics[0], value=value, partition=partition)
        producer.flush(10)
        if "first" in capped.at_ms and attempt > 25:
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    text = (place.folder / "live.log").read_text()[-3000:]
    raise RuntimeError(f"the job does not start\n{text}")


def _send(place: Place) -> dict[str, float]:
    """User -> the timestamp of the view that makes the limit full."""
    producer, topic = _producer(place), place.topics[0]
    chance = numpy.random.default_rng(3)
    count = RATE * (SECONDS + WARM_UP_S)
    who = chance.integers(0, _USERS, count).tolist()
    seen = [0] * _USERS
    sent_ms: dict[str, float] = {}
    begin_s = time.monotonic()
    at_once = int(RATE * _TICK_S)
    for start in range(0, count, at_once):
        time.sleep(max(0.0, begin_s + start / RATE - time.monotonic()))
        for number in range(start, start + at_once):
            user, now_ms = who[number], int(time.time() * 1000)
            name = f"user-{user:06d}"
            value = data.record(name, user % data.ADS, now_ms, "DE")
            producer.produce(topic, value=value, partition=number % data.PARTITIONS)
            seen[user] += 1
            if seen[user] == data.LIMIT:
                sent_ms[name] = now_ms
        producer.poll(0)
    assert producer.flush(60) == 0
    return sent_ms


def _await_caps(sent_ms: dict[str, float], capped: _Capped) -> None:
    give_up_s = time.monotonic() + 60
    while time.monotonic() < give_up_s and not sent_ms.keys() <= capped.at_ms.keys():
        time.sleep(0.1)
