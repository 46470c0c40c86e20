"""The demo's parts: what it shows, and that it leaves nothing behind in a Kafka and a Redis of others."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from millpond.apps.frequency_capping.demo import remove_caps, through_kafka
from millpond.apps.frequency_capping.demo_view import Row, Seen, draw, line, report, screen
from tests.servers import KafkaServer, RedisServer, wait_until


def seen() -> Seen:
    rows = [
        Row(s, s * 5000, s, s * 90, s * 80, 10, 0.4, [100 + s] * 3, "user demo-1 must not see ad:a")
        for s in range(1, 31)
    ]
    return Seen(rows)


def test_screen_fits_the_terminal_and_has_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = screen(seen(), 30)
    assert max(map(len, lines)) < 80
    text = "\n".join(lines)
    for found in ("5,000 a second", "300 for 10 users", "128 ms (median), 130 ms (99 %)", "demo-1"):
        assert found in text
    assert "latency   128 ms" in line(seen())
    assert "118 ms (median), 130 ms (99 %)" in report(seen())


def test_missing_matplotlib_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.png"
    assert str(path) in draw(seen(), str(path), "title")
    assert path.read_bytes().startswith(b"\x89PNG")
    real_import = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install matplotlib" in draw(seen(), str(path), "title")


def test_demo_leaves_nothing_in_the_redis_of_others(redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.sadd("cap:{demo-1}", "ad:a")
    client.sadd("cap:{42}", "ad:a")
    remove_caps(redis_server.url)
    assert redis_server.sets() == {"cap:{42}": {"ad:a"}}


@pytest.mark.spark
def test_demo_leaves_no_topic_in_the_kafka_of_others(tmp_path: Path) -> None:
    kafka = KafkaServer(tmp_path / "kafka")
    kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        with through_kafka(kafka.servers, 1000):
            (topic,) = (own for own in admin.list_topics().topics if own.startswith("millpond"))
            wait_until(lambda: kafka.count(topic) > 10, "no views")
        assert topic not in admin.list_topics().topics
    finally:
        kafka.stop()
