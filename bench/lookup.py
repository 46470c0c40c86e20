"""The look-up service of frequency capping at a fixed rate: how long answers take, over real HTTP and Redis.

Each of many connections asks when its next question is due, or as soon as it has the answer before. What
counts is the time since it was due, so a service that falls behind shows it.
"""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from tests.servers import RedisServer, free_port

_USERS, _ADS = 100_000, 50
_CONNECTIONS = 32


def measure(rate: int = 2000, seconds: float = 10.0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        redis = RedisServer(Path(folder))
        redis.start()
        try:
            _fill(redis)
            return _serve_and_ask(redis.url, rate, seconds)
        finally:
            redis.stop()


def _fill(redis: RedisServer) -> None:
    chance, pipeline = random.Random(1), redis.client().pipeline(transaction=False)
    for user in range(_USERS):
        pipeline.sadd(f"cap:{{{user}}}", *(f"ad:ad-{chance.randrange(_ADS)}" for _ in range(5)))
        if user % 1000 == 0:
            pipeline.execute()
    pipeline.execute()


def _serve_and_ask(url: str, rate: int, seconds: float) -> dict[str, Any]:
    port = free_port()
    command = [sys.executable, "-m", "millpond", "capping", "serve", "--redis", url]
    with subprocess.Popen([*command, "--port", str(port)]) as service:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_ask(port, rate, 2.0))  # it starts, and warms up
                gc.collect()
                gc.freeze()  # what is ours should not be seen in the figures
                latencies = sorted(runner.run(_ask(port, rate, seconds)))
        finally:
            service.terminate()
    at = {share: latencies[int(share * (len(latencies) - 1))] * 1000 for share in (0.5, 0.99, 1.0)}
    return {
        "rate": rate,
        "answers": len(latencies),
        "p50": at[0.5],
        "p99": at[0.99],
        "max": at[1.0],
    }


async def _ask(port: int, rate: int, seconds: float) -> list[float]:
    """Seconds from when a question was due to its answer."""
    connections = [await _connect(port) for _ in range(_CONNECTIONS)]
    latencies: list[float] = []
    begin_s = time.perf_counter() + 0.1

    async def ask_by_turns(own: int) -> None:
        reader, writer = connections[own]
        chance = random.Random(own)
        for number in range(own, int(rate * seconds), _CONNECTIONS):
            due_s = begin_s + number / rate
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            ads = ",".join(f"ad-{chance.randrange(_ADS)}" for _ in range(5))
            path = f"/v1/allowed?user={chance.randrange(_USERS)}&ads={ads}"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().split(b"content-length:")[1].split()[0])
            await reader.readexactly(length)
            latencies.append(time.perf_counter() - due_s)

    await asyncio.gather(*map(ask_by_turns, range(_CONNECTIONS)))
    for _, writer in connections:
        writer.close()
    return latencies


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    for _ in range(600):
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
    raise TimeoutError("the look-up service does not start")


def table(results: dict[str, Any]) -> str:
    return (
        "| questions/s | answers | median, ms | 99 %, ms (goal < 5) | longest, ms |\n|---|---|---|---|---|\n"
        f"| {results['rate']:,} | {results['answers']:,} | {results['p50']:.2f} | {results['p99']:.2f} | "
        f"{results['max']:.2f} |\n"
    )
