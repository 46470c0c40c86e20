"""`millpond capping ...`: frequency capping as a product."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from millpond.cli import capping_orders
from millpond.cli.capping_job import (
    JOB_NAME,
    dead_letters_of,
    make_absolute,
    make_environment,
    make_source,
    own_redis_url,
    redis_of,
    remember,
)
from millpond.common.job_client import JobClient
from millpond.datastream.connectors.redis import connect
from millpond.errors import ProgramError, SetupError
from millpond.runtime.job_folder import is_locked

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


def add_commands(commands: Any) -> None:
    capping = commands.add_parser(
        "capping",
        help="ad frequency capping: views in, what users must not see to Redis",
        description="Ad frequency capping. docs/guide/frequency-capping.md tells how to begin.",
    )
    actions = capping.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser(
        "run",
        help="run the job",
        description="Reads views, and keeps the sets cap:{USER} in Redis: what each user must not see now.",
    )
    run.add_argument(
        "--input",
        required=True,
        metavar="PLACE",
        help="a folder or file of JSON lines, or kafka://HOST:PORT/TOPIC",
    )
    run.add_argument(
        "--history",
        metavar="DIR",
        help="a folder or file of JSON lines to be read before the topic; then, with --begin, the topic from "
        "where the files end",
    )
    run.add_argument(
        "--begin",
        default="earliest",
        metavar="WHERE",
        help="where to begin in a topic that was not read before: earliest, latest, or a time in ms",
    )
    run.add_argument(
        "--rules", metavar="FILE", help="rules in YAML; else: 5 views of an ad in 5 days"
    )
    run.add_argument(
        "--rules-topic",
        metavar="PLACE",
        help="kafka://HOST:PORT/TOPIC of messages that change the rules",
    )
    run.add_argument(
        "--redis",
        metavar="URL",
        help="such as redis://localhost:6379/0; without it there is an embedded one while the job runs",
    )
    run.add_argument(
        "--redis-ttl",
        metavar="TIME",
        help="let Redis forget users of whom it has not been told anything for so long; longer than any "
        "rule caps. A safety net for a job that is never started again (default: Redis forgets nothing)",
    )
    run.add_argument(
        "--state-ttl",
        metavar="TIME",
        help="let state forget entries that were not written for so long, in event time; at least twice as "
        "long as any view matters. A safety net behind what is removed in time; costs about a fifth of the "
        "speed (default: none)",
    )
    run.add_argument("--checkpoint", required=True, metavar="DIR", help="folder for durable state")
    run.add_argument(
        "--until-end",
        action="store_true",
        help="work through what is there, leave Redis as of the newest record, and stop",
    )
    run.add_argument(
        "--dead-letters", metavar="DIR", help="default: dead-letters in the checkpoint folder"
    )
    run.add_argument(
        "--out-of-orderness",
        default="0s",
        metavar="TIME",
        help="how late records may come without being counted later than they happened (default 0s)",
    )
    run.add_argument("--master", help="Spark master: local[*], spark://HOST:PORT, yarn, k8s://...")
    run.add_argument("-p", "--parallelism", type=int, help="default parallelism of operators")
    run.add_argument(
        "-D", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="any setting"
    )
    serve = actions.add_parser(
        "serve",
        help='answer "may this user see these ads?" over HTTP',
        description="GET /v1/allowed?user=42&ads=a,b,c; POST /v1/allowed for many; the page at / tells all.",
    )
    which = serve.add_mutually_exclusive_group(required=True)
    which.add_argument("--redis", metavar="URL", help="such as redis://localhost:6379/0")
    which.add_argument(
        "--checkpoint", metavar="DIR", help="of a job that runs without a Redis: its embedded one"
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8090, help="port to listen at (8090)")
    serve.add_argument("--workers", type=int, default=1, help="processes that answer (1)")
    demo = actions.add_parser(
        "demo",
        help="show it at work, with made-up views and an embedded Redis",
        description="Makes up views, caps them, and shows what happens. Needs nothing but Python and Java.",
    )
    demo.add_argument("--seconds", type=float, default=30, help="how long (30)")
    demo.add_argument("--rate", type=int, default=5000, help="views a second (5000)")
    demo.add_argument("--kafka", metavar="HOST:PORT", help="send the views through this Kafka")
    demo.add_argument("--redis", metavar="URL", help="a Redis of yours instead of the embedded one")
    demo.add_argument("--picture", default="capping-demo.png", metavar="FILE", help="where to draw")
    capping_orders.add_orders(actions)


def run_capping(parsed: argparse.Namespace) -> int:
    actions = {
        "run": _run,
        "serve": _serve,
        "demo": _demo,
        "rebuild-redis": capping_orders.rebuild,
        "forget": capping_orders.forget,
        "explain": capping_orders.explain,
    }
    return actions[parsed.action](parsed)


def _run(parsed: argparse.Namespace) -> int:
    make_absolute(parsed)
    source = make_source(parsed)
    if is_locked(Path(parsed.checkpoint), JOB_NAME):
        raise ProgramError(f"--checkpoint {parsed.checkpoint}: a job runs there already.")
    with redis_of(parsed) as redis_url:
        environment = make_environment(parsed, source, parsed.until_end, redis_url)
        if parsed.redis is None:
            print(f"Redis, while this runs: {redis_url}", file=sys.stderr)
        remember(parsed)
        client = environment.execute_async(JOB_NAME)
        try:
            _watch(client)
        except KeyboardInterrupt:
            print("Stopping; the job goes on from here when it is started again.", file=sys.stderr)
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
    connect(parsed.redis)  # tells what is wrong with the URL
    if parsed.workers == 1:
        uvicorn.run(
            make_app(parsed.redis),
            host=parsed.host,
            port=parsed.port,
            access_log=False,
            log_level="warning",
        )
        return 0
    os.environ[_REDIS_VARIABLE] = parsed.redis
    uvicorn.run(
        "millpond.cli.capping:app_of_environment",
        factory=True,
        host=parsed.host,
        port=parsed.port,
        workers=parsed.workers,
        access_log=False,
        log_level="warning",
    )
    return 0


def _demo(parsed: argparse.Namespace) -> int:
    from millpond.apps.frequency_capping.demo import run_demo

    return run_demo(parsed.seconds, parsed.rate, parsed.kafka, parsed.redis, parsed.picture)


def app_of_environment() -> Any:
    """For the processes of `serve --workers`."""
    from millpond.apps.frequency_capping.lookup import make_app

    return make_app(os.environ[_REDIS_VARIABLE])


def _watch(client: JobClient) -> None:
    """A line on standard error whenever there is something new, until the job has ended."""
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
    print(f"Redis is as of {capping_orders.time_text(now_ms)}, in event time.")
    if counts["bad"] or counts["late"]:
        print(f"Bad and late records are in {dead_letters}.")
