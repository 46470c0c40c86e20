"""The options of `millpond capping ...`. What it does is in `actions.py`, slower to import."""

from __future__ import annotations

import argparse
from typing import Any


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
    run.add_argument(
        "--rules-grace",
        default="1h",
        metavar="TIME",
        help="how long a rule that vanishes from the rules goes on counting, without capping anything, in "
        "event time: if it comes back meanwhile, nothing is lost (default 1h; 0s: it is forgotten at once)",
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
    _add_demo(actions)
    _add_orders(actions)
    capping.set_defaults(call=_run)


def add_demo_command(commands: Any) -> None:
    """`millpond demo`: for short."""
    _add_demo(commands).set_defaults(call=_run_demo)


def _add_orders(actions: Any) -> None:
    for name, text in (
        (
            "rebuild-redis",
            "write Redis anew from the job's state, after a loss: all keys cap:{...} of that database are "
            "removed first, also those of another job",
        ),
        ("forget", "erase a user from state and Redis"),
        ("explain", "show what a user has seen, which rules cap it, and until when"),
    ):
        order = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name != "rebuild-redis":
            order.add_argument("user")
        if name == "explain":
            order.add_argument(
                "ad", nargs="?", help="or another id that rules count; all without it"
            )
            order.add_argument("--json", action="store_true", help="for programs")
        order.add_argument("--checkpoint", required=True, metavar="DIR", help="as given to run")
        order.add_argument(
            "--timeout", type=float, default=300, metavar="S", help="how long to wait (300 s)"
        )


def _add_demo(commands: Any) -> argparse.ArgumentParser:
    demo: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="show it at work, with made-up views and an embedded Redis",
        description="Makes up views, caps them, and shows what happens. Needs nothing but Python and Java.",
    )
    demo.add_argument("--seconds", type=float, default=30, help="how long (30)")
    demo.add_argument("--rate", type=int, default=5000, help="views a second (5000)")
    demo.add_argument("--kafka", metavar="HOST:PORT", help="send the views through this Kafka")
    demo.add_argument("--redis", metavar="URL", help="a Redis of yours instead of the embedded one")
    demo.add_argument("--picture", default="capping-demo.png", metavar="FILE", help="where to draw")
    return demo


def _run(parsed: argparse.Namespace) -> int:
    from millpond.apps.frequency_capping.command.actions import run_capping

    return run_capping(parsed)


def _run_demo(parsed: argparse.Namespace) -> int:
    parsed.action = "demo"
    return _run(parsed)
