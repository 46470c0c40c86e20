"""The look-up service, over a real Redis and real HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.servers import RedisServer, free_port, wait_until


@contextmanager
def served(redis_url: str, *more: str) -> Iterator[httpx.Client]:
    port = free_port()
    command = [sys.executable, "-m", "millpond", "capping", "serve", "--redis", redis_url]
    with (
        subprocess.Popen([*command, "--port", str(port), *more]) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):

        def listens() -> bool:
            try:
                return client.get("/openapi.json").status_code == 200
            except httpx.ConnectError:
                return False

        wait_until(listens, "the service does not start")
        try:
            yield client
        finally:
            process.terminate()


@pytest.fixture
def lookup(redis_server: RedisServer) -> Iterator[httpx.Client]:
    redis_server.client().sadd("cap:{42}", "ad:a", "campaign:c1")
    with served(redis_server.url) as client:
        yield client


def test_service_answers_what_redis_says(lookup: httpx.Client) -> None:
    answer = lookup.get("/v1/allowed", params={"user": "42", "ads": "a,b,c"}).json()
    assert answer == {"user": "42", "allowed": ["b", "c"], "capped": {"a": ["ad:a"]}}
    answer = lookup.get("/v1/allowed", params={"user": "7", "ads": "a"}).json()
    assert answer == {"user": "7", "allowed": ["a"], "capped": {}}
    assert lookup.get("/v1/health").json() == {"status": "ok"}


def test_many_can_be_asked_at_once_with_all_levels(lookup: httpx.Client) -> None:
    asked = {
        "requests": [
            {"user": 42, "candidates": [{"ad": "b", "campaign": "c1"}, {"ad": "b2"}, {"ad": "a"}]},
            {"user": "ann", "candidates": [{"ad": "a", "campaign": "c1", "color": "red"}]},
        ]
    }
    answer = lookup.post("/v1/allowed", json=asked).json()
    assert answer["answers"] == [
        {"user": "42", "allowed": ["b2"], "capped": {"b": ["campaign:c1"], "a": ["ad:a"]}},
        {"user": "ann", "allowed": ["a"], "capped": {}},
    ]


@pytest.mark.parametrize(
    "query", ["", "?user=42", "?user=&ads=a", "?user=42&ads=,", f"?user=1&ads={'a,' * 1001}"]
)
def test_wrong_questions_get_a_clean_answer(lookup: httpx.Client, query: str) -> None:
    answer = lookup.get(f"/v1/allowed{query}")
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert lookup.post("/v1/allowed", content=b"{broken").status_code == 422
    assert lookup.post("/v1/allowed", json={"requests": []}).status_code == 422


def test_page_needs_nothing_from_elsewhere(lookup: httpx.Client) -> None:
    text = lookup.get("/").text
    assert "/v1/allowed" in text
    assert "http" not in text.replace("https", "http").split("<h1>")[0]


def test_redis_that_is_away_is_told(lookup: httpx.Client, redis_server: RedisServer) -> None:
    redis_server.kill()
    answer = lookup.get("/v1/allowed", params={"user": "42", "ads": "a"})
    assert answer.status_code == 503
    assert f"Redis at {redis_server.url}" in answer.json()["detail"]
    redis_server.start()
    assert lookup.get("/v1/health").status_code == 200
