"""Ten days of a topic, read again from its beginning, give what the live run gave; bad records included."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millpond.apps.frequency_capping.pipeline import RULES_DELAY_MS
from tests.capping import reference
from tests.capping.live import Live
from tests.capping.reference import Came, Phase
from tests.capping.test_command import START, views
from tests.servers import KafkaServer, RedisServer, wait_until

pytestmark = pytest.mark.spark
DAY = 86_400_000
RULES = [
    {"name": "ads", "level": "ad", "limit": 4, "window": "2d"},
    {"name": "campaigns", "level": "campaign", "limit": 6, "window": {"calendar": "day"}},
]
CHANGES: dict[int, dict[str, Any]] = {  # day -> message
    3: {"rule": {"name": "ads", "level": "ad", "limit": 3, "window": "5d"}},
    5: {"rule": {"name": "new", "level": "ad", "limit": 1, "window": "3h", "cool_down": "20h"}},
    8: {"delete": "campaigns"},
}
MEGABYTE = 990_000
SEED = 10


def bad_records(chance: random.Random, time_ms: int) -> list[tuple[str, bytes | None]]:
    """(reason, record): one of every kind."""
    good = {"user_no": chance.randrange(99), "da_id": "ad", "log_time": time_ms}
    as_json = json.dumps(good).encode()
    return [
        ("empty", None),
        ("empty", b" "),
        ("not JSON", as_json[: chance.randrange(1, len(as_json))]),
        ("not JSON", json.dumps({**good, "da_id": "\ud800"}).encode()),
        ("not JSON", b'{"broken": "' + b"x" * MEGABYTE),
        ("not UTF-8", json.dumps(good).encode("utf-16")),
        ("not UTF-8", json.dumps({**good, "da_id": "Käse"}, ensure_ascii=False).encode("latin-1")),
        ("not UTF-8", b"\xff" + chance.randbytes(300)),
        ("not an object", b"[1, 2]"),
        ("no user", json.dumps({**good, "user_no": None}).encode()),
        ("no ad", json.dumps({k: v for k, v in good.items() if k != "da_id"}).encode()),
        ("no time", json.dumps({k: v for k, v in good.items() if k != "log_time"}).encode()),
        ("time is not an integer", json.dumps({**good, "log_time": "yesterday"}).encode()),
        ("time is out of range", json.dumps({**good, "log_time": time_ms * 1000}).encode()),
        ("time is out of range", json.dumps({**good, "log_time": time_ms + 2 * DAY}).encode()),
        ("time is out of range", json.dumps({**good, "log_time": 0}).encode()),
    ]


class Topics:
    """Messages have the times at which they would have been sent."""

    def __init__(self, kafka: KafkaServer) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.servers, "linger.ms": 5})

    def send(self, topic: str, messages: list[tuple[int, bytes | None, int]]) -> None:
        """(partition, value, time) each."""
        for partition, value, time_ms in messages:
            self._producer.produce(topic, value, partition=partition, timestamp=time_ms)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


class Days:
    """What is sent on each of ten days: (record, when), in order; and what is bad of it."""

    def __init__(self, seed: int = SEED) -> None:
        chance = random.Random(seed)
        self.records: list[dict[str, Any]] = []
        self.bad: list[tuple[str, bytes | None]] = []
        self.sent: list[list[tuple[bytes | None, int]]] = []
        for day in range(10):
            good = sorted(views(seed + day, day * 24, 24, 160), key=lambda own: own["log_time"])
            good[-1]["filler"] = "x" * MEGABYTE
            noon_ms = START + day * DAY + DAY // 2
            bad = bad_records(chance, noon_ms)
            data = [(json.dumps(own).encode(), int(own["log_time"])) for own in good]
            both = [*data, *((own, noon_ms) for _, own in bad)]
            self.sent.append(sorted(both, key=lambda own: own[1]))
            self.records += good
            self.bad += bad
        self.newest_ms = max(int(own["log_time"]) for own in self.records)

    def write(self, path: Path, days: int) -> None:
        """Good records of the first days."""
        lines = [own for own in self.records if own["log_time"] < START + days * DAY]
        path.write_text("".join(json.dumps(own) + "\n" for own in lines))


def test_replay_of_ten_days_equals_the_live_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """P2, P7, E13: rules change by messages meanwhile; a tenth of all records is bad, in every way. Read
    again from the topic, and from files up to the fifth day and then from the topic."""
    days, chance = Days(), random.Random(8)
    in_the_end = expected(days.records, days.newest_ms)
    assert len(in_the_end) > 20
    # The live run goes on a little, by the clock, before it is stopped.
    assert expected(days.records, days.newest_ms + 600_000) == in_the_end
    kafka = KafkaServer(tmp_path / "kafka")
    kafka.start()
    kafka.create("views", 2)
    kafka.create("rules", 1)
    place, rules = f"kafka://{kafka.servers}/views", f"kafka://{kafka.servers}/rules"
    days.write(tmp_path / "past.jsonl", 5)
    topics = Topics(kafka)
    jobs: dict[str, tuple[Live, RedisServer]] = {}
    past = ["--history", str(tmp_path / "past.jsonl"), "--begin", str(START + 5 * DAY)]
    for name, more in (("live", []), ("again", []), ("from files", past)):
        server = RedisServer(tmp_path_factory.mktemp("redis"))
        server.start()
        live = Live(tmp_path / name, place, server, RULES, "--rules-topic", rules, *more)
        jobs[name] = (live, server)
    live = jobs["live"][0]
    try:
        live.start()
        for day, sent in enumerate(days.sent):
            if day in CHANGES:
                message = json.dumps(CHANGES[day]).encode()
                topics.send("rules", [(0, message, START + day * DAY)])
                live.await_progress(1)
            topics.send("views", [(chance.randrange(2), *own) for own in sent])
            live.await_progress(1)
        # When nothing comes any more, event time goes on by the clock, so the last views count, too.
        live_redis = jobs["live"][1]
        wait_until(lambda: live_redis.sets() == in_the_end, "the live run has another result", 60)
        live.interrupt()
        for name in ("again", "from files"):
            assert jobs[name][0].finish() == days.newest_ms
        found = {name: server.sets() for name, (_, server) in jobs.items()}
    finally:
        for job, server in jobs.values():
            job.end()
            server.stop()
        kafka.stop()
    for name in jobs:
        assert found[name] == in_the_end, name
    for name in ("live", "again"):
        letters = jobs[name][0].letters()
        reasons = Counter(reason for reason, _ in days.bad)
        assert Counter(letter["reason"] for letter in letters) == reasons, name
        assert sorted(map(whole, letters)) == sorted(data or b"" for _, data in days.bad), name


def whole(letter: dict[str, Any]) -> bytes:
    if "base64" in letter:
        return base64.b64decode(letter["base64"])
    return str(letter["record"]).encode()


def expected(records: list[dict[str, Any]], now_ms: int) -> dict[str, set[str]]:
    """Views that are late, because a partition was ahead, do not matter: in the end it is the same."""
    phases = [Phase(reference.LONG_AGO, RULES)]
    for day, message in CHANGES.items():
        rule = message.get("rule")
        name = message["delete"] if rule is None else rule["name"]
        rules = [own for own in phases[-1].rules if own["name"] != name]
        rules += [] if rule is None else [rule]
        phases.append(Phase(START + day * DAY + RULES_DELAY_MS, rules))
    found = reference.capped([Came(own) for own in records], phases, now_ms)
    return {f"cap:{{{user}}}": members for user, members in found.items()}
