"""Redis as a sink and for look-ups, one server and a cluster, with real ones (E9, E43)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Types
from millpond.datastream import DataStream
from millpond.datastream.bundle_functions import BundleMapFunction
from millpond.datastream.connectors.redis import RedisLookup, RedisSink
from millpond.datastream.connectors.redis.connection import connect
from millpond.errors import JobExecutionError, UserFunctionError
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.servers import RedisServer, redis_cluster


@pytest.fixture(scope="module", params=["one", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("redis")
    if request.param == "one":
        servers = [RedisServer(folder)]
        servers[0].start()
        found = servers[0].url
    else:
        servers = redis_cluster(folder)
        found = f"redis+cluster://127.0.0.1:{servers[0].port}"
    yield found
    for server in servers:
        server.stop()


def numbers(count: int, **settings: Any) -> DataStream:
    return direct_environment(settings).from_collection(list(range(count)))


def test_sink_and_look_up(url: str) -> None:
    """Keys of all slots, more than go in one pipeline."""
    environment = direct_environment()
    stream = environment.from_collection(list(range(1500)))
    stream.sink_to(
        RedisSink(url, lambda n: [("SADD", f"set:{{{n % 300}}}", n), ("SET", f"n{n}", n)])
    )
    environment.execute()
    lookup = RedisLookup(
        url,
        lambda n: ("GET", f"n{n}") if n % 2 else ("SISMEMBER", f"set:{{{n % 300}}}", n),
        lambda n, answer: (n, answer),
    )
    found = sorted(numbers(1600).map(lookup).execute_and_collect())
    assert found[:4] == [(0, 1), (1, "1"), (2, 1), (3, "3")]
    assert found[1501] == (1501, None) and found[1502] == (1502, 0)


def test_last_command_wins_in_a_cluster_too(url: str) -> None:
    environment = direct_environment()
    stream = environment._source(MarkedSource([1, -1, 2, -2, 2, CUT]), "changes", None)

    def commands(n: int) -> list[Any]:
        return [("SADD" if n > 0 else "SREM", "caps:{7}", abs(n))]

    stream.sink_to(RedisSink(url, commands, last_wins=True))
    environment.execute()
    with connect(url, decode=True) as client:
        assert client.smembers("caps:{7}") == {"2"}


def test_answers_have_the_form_of_their_command(url: str) -> None:
    with connect(url) as client:
        client.hset("h", mapping={"a": 1, "b": "ü"})
    asked = numbers(1).map(RedisLookup(url, lambda _: ("HGETALL", "h")))
    assert list(asked.execute_and_collect()) == [(0, {"a": "1", "b": "ü"})]
    raw = numbers(1).map(RedisLookup(url, lambda _: ("HGET", "h", "b"), decode=False))
    assert list(raw.execute_and_collect()) == [(0, "ü".encode())]
    none = numbers(2).map(RedisLookup(url, lambda _: None))
    assert list(none.execute_and_collect()) == [(0, None), (1, None)]


def test_look_up_must_not_write(url: str) -> None:
    writes = numbers(1).map(RedisLookup(url, lambda _: ("INCR", "x")))
    with pytest.raises(UserFunctionError, match=r"commands that only read, .* not INCR"):
        list(writes.execute_and_collect())


def test_wrong_kind_of_key_is_told(url: str) -> None:
    with connect(url) as client:
        client.set("text", "t")
    asked = numbers(1).map(RedisLookup(url, lambda _: ("SMEMBERS", "text")))
    with pytest.raises(UserFunctionError, match="WRONGTYPE"):
        list(asked.execute_and_collect())


def test_equal_commands_of_a_bundle_are_sent_once_and_together(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    with server.client() as client:
        client.set("k", "v")
        before = client.info("commandstats")
        found = numbers(3000).map(RedisLookup(server.url, lambda n: ("GET", f"k{n % 3 or ''}")))
        assert len(list(found.execute_and_collect())) == 3000
        after = client.info("commandstats")
    server.stop()
    assert "cmdstat_get" not in before
    bundles = -(-3000 // 1024)  # at most, whatever the source gives at once
    assert after["cmdstat_get"]["calls"] <= 3 * bundles


def test_redis_that_is_away_is_waited_for(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    with server.client() as client:
        client.set("k", "v")
    server.kill()
    asked = numbers(1).map(RedisLookup(server.url, lambda _: ("GET", "k"), patience_s=0.1))
    with pytest.raises(JobExecutionError, match=r"has not answered for 0\.1 s"):
        list(asked.execute_and_collect())
    back = threading.Timer(0.3, server.start)
    back.start()
    asked = numbers(1).map(RedisLookup(server.url, lambda _: ("GET", "k")))
    assert list(asked.execute_and_collect()) == [(0, "v")]
    back.join()
    server.stop()


# --- functions that take many ------------------------------------------------------------------------


class Sizes(BundleMapFunction):
    def map_many(self, values: list[Any]) -> list[Any]:
        return [(value, len(values) > 1) for value in values]


class TooFew(BundleMapFunction):
    def map_many(self, values: list[Any]) -> list[Any]:
        return values[1:]


def test_bundle_map_gets_many_in_order() -> None:
    found = list(numbers(100).map(Sizes()).execute_and_collect())
    assert found == [(n, True) for n in range(100)]
    assert Sizes().map(5) == (5, False)


def test_bundle_map_results_are_checked() -> None:
    with pytest.raises(UserFunctionError, match="gave 1 results for 2 values"):
        list(numbers(2).map(TooFew()).execute_and_collect())
    with pytest.raises(UserFunctionError, match="does not fit the declared type"):
        list(numbers(2).map(Sizes(), output_type=Types.STRING()).execute_and_collect())
