"""Carries out `millpond capping ...`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.apps.frequency_capping.command import orders
from millpond.apps.frequency_capping.command.job import (
    JOB_NAME,
    config_of,
    dead_letters_of,
    make_absolute,
    make_environment,
    make_source,
    own_redis_url,
    redis_of,
    remember,
)
from millpond.common.job_client import JobClient
from millpond.datastream.connectors.redis.connection import connect
from millpond.driver.job_folder import is_locked
from millpond.errors import ProgramError, SetupError

if TYPE_CHECKING:
    from fastapi import FastAPI

_REDIS_VARIABLE = "MILLPOND_CAPPING_REDIS"
_COUNTS = {
    "records": "read records.records",
    "bad": "read records.bad",
    "filtered": "read records.filtered",
    "duplicates": "cap users.duplicates",
    "late": "cap users.late",
    "caps": "cap users.caps",
    "uncaps": "cap users.uncaps",
}


def run_capping(parsed: argparse.Namespace) -> int:
    """Carry out the action of a command line that `options.py` has read, and return the exit code."""
    actions = {
        "run": _run,
        "serve": _serve,
        "demo": _demo,
        "rebuild-redis": orders.rebuild,
        "forget": orders.forget,
        "explain": orders.explain,
    }
    return actions[parsed.action](parsed)


def _run(parsed: argparse.Namespace) -> int:
    make_absolute(parsed)
    source, config = make_source(parsed), config_of(parsed)
    if is_locked(Path(parsed.checkpoint), JOB_NAME):
        raise ProgramError(f"--checkpoint {parsed.checkpoint}: a job is already running there.")
    with redis_of(parsed) as redis_url:
        environment = make_environment(parsed, config, source, parsed.until_end, redis_url)
        if parsed.redis is None:
            print(f"Redis, while the job runs: {redis_url}", file=sys.stderr)
        remember(parsed, config)
        client = environment.execute_async(JOB_NAME)
        try:
            _watch(client)
        except KeyboardInterrupt:
            print("Stopping; when started again, the job continues from here.", file=sys.stderr)
            client.cancel().result()
            return 130
        client.get_job_execution_result().result()
        _report(client, dead_letters_of(parsed))
    return 0


def _serve(parsed: argparse.Namespace) -> int:
    try:
        import uvicorn

        from millpond.apps.frequency_capping.lookup import make_app
    except ImportError as problem:
        raise SetupError(
            f"The look-up service needs {problem.name}: pip install 'millpond[capping]'."
        ) from None
    if parsed.redis is None:
        parsed.redis = own_redis_url(Path(parsed.checkpoint))
    connect(parsed.redis)  # raises if the URL is wrong
    if parsed.workers == 1:
        uvicorn.run(
            make_app(parsed.redis),
            host=parsed.host,
            port=parsed.port,
            access_log=False,
            proxy_headers=False,  # the service does not use the address of its clients
            log_level="warning",
        )
        return 0
    os.environ[_REDIS_VARIABLE] = parsed.redis
    uvicorn.run(
        "millpond.apps.frequency_capping.command.actions:app_of_environment",
        factory=True,
        host=parsed.host,
        port=parsed.port,
        workers=parsed.workers,
        access_log=False,
        proxy_headers=False,
        log_level="warning",
    )
    return 0


def _demo(parsed: argparse.Namespace) -> int:
    from millpond.apps.frequency_capping.demo import run_demo

    return run_demo(parsed.seconds, parsed.rate, parsed.kafka, parsed.redis, parsed.picture)


def app_of_environment() -> FastAPI:
    """Return the look-up service for the Redis that an environment variable names. The processes of
    `serve --workers` call it."""
    from millpond.apps.frequency_capping.lookup import make_app

    return make_app(os.environ[_REDIS_VARIABLE])


def _watch(client: JobClient) -> None:
    """Print a line to standard error whenever counts have changed, until the job has ended."""
    shown: dict[str, int] = {}
    since_s = time.monotonic()
    while not client.get_job_status().result().is_terminal_state():
        counts = _counts(client)
        now_s = time.monotonic()
        if counts != shown and now_s - since_s > 2:
            rate = (counts["records"] - shown.get("records", 0)) / (now_s - since_s)
            print(f"{_text(counts)}; {rate:,.0f} records/s", file=sys.stderr, flush=True)
            shown, since_s = counts, now_s
        time.sleep(0.1)


def _counts(client: JobClient) -> dict[str, int]:
    metrics = client.get_accumulators().result()
    return {name: int(metrics.get(metric, 0)) for name, metric in _COUNTS.items()}


def _text(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _report(client: JobClient, dead_letters: str) -> None:
    counts = _counts(client)
    print(_text(counts))
    metrics = client.get_accumulators().result()
    prefix = "read records.bad: "
    for name, count in sorted(metrics.items()):
        if name.startswith(prefix):
            print(f"  {name.removeprefix(prefix)}: {count:,}")
    now_ms = int(metrics.get("cap users.currentInputWatermark", 0))
    print(f"Redis is as of {orders.time_text(now_ms)} in event time.")
    if counts["bad"] or counts["late"]:
        print(f"Bad and late records are in {dead_letters}.")
