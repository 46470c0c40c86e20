"""The options of `millpond capping ...`. What it does is in `actions.py`, which takes longer to import."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.cli.commands import Commands


def add_commands(commands: Commands) -> None:
    """Add `capping` with all its actions."""
    capping = commands.add_parser(
        "capping",
        help="ad frequency capping: counts views, and writes to Redis what users must not see",
        description="Ad frequency capping. See docs/guide/frequency-capping.md for how to begin.",
    )
    actions = capping.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_run(actions)
    _add_serve(actions)
    _add_demo(actions)
    _add_orders(actions)
    capping.set_defaults(call=_run)


def _add_run(actions: Commands) -> None:
    run = actions.add_parser(
        "run",
        help="run the job",
        description="Read views, and keep a set cap:{USER} in Redis for each user: what they must not see.",
    )
    _add_input_options(run)
    _add_rules_options(run)
    _add_redis_options(run)
    _add_job_options(run)


def _add_input_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--input",
        required=True,
        metavar="SOURCE",
        help="folder or file of JSON lines, or kafka://HOST:PORT/TOPIC",
    )
    run.add_argument(
        "--history",
        metavar="DIR",
        help="folder or file of JSON lines to read before the topic; use --begin to start in the topic where "
        "the files end",
    )
    run.add_argument(
        "--begin",
        default="earliest",
        metavar="WHERE",
        help="where to begin in a topic that has not been read before: earliest, latest, or a time in "
        "milliseconds (default: earliest)",
    )
    run.add_argument(
        "--out-of-orderness",
        default="0s",
        metavar="TIME",
        help="how long to wait for late records; later ones count only from their arrival (default: 0s)",
    )
    run.add_argument(
        "--until-end",
        action="store_true",
        help="process the input that exists, bring Redis up to the newest record, and stop",
    )


def _add_rules_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--rules", metavar="FILE", help="rules in YAML (default: 5 views of an ad in 5 days)"
    )
    run.add_argument(
        "--rules-topic",
        metavar="TOPIC",
        help="kafka://HOST:PORT/TOPIC with messages that change the rules",
    )
    run.add_argument(
        "--rules-grace",
        default="1h",
        metavar="TIME",
        help="how long a rule that vanishes from the rules continues to count, without capping anything, in "
        "event time; if it comes back in time, nothing is lost (default: 1h; 0s: it is forgotten at once)",
    )


def _add_redis_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--redis",
        metavar="URL",
        help="such as redis://localhost:6379/0 (default: an embedded Redis while the job runs)",
    )
    run.add_argument(
        "--redis-ttl",
        metavar="TIME",
        help="let Redis forget users whose caps have not changed for this long, which must be longer "
        "than any rule caps; a safety net for a job that is never started again (default: never)",
    )


def _add_job_options(run: argparse.ArgumentParser) -> None:
    run.add_argument("--checkpoint", required=True, metavar="DIR", help="folder for durable state")
    run.add_argument(
        "--state-ttl",
        metavar="TIME",
        help="let state forget entries that have not been written for this long in event time, at least "
        "twice as long as any view matters; only a safety net, since old state is removed anyway; costs "
        "about a fifth of the speed (default: never)",
    )
    run.add_argument(
        "--dead-letters",
        metavar="DIR",
        help="folder for bad, late and refused input (default: dead-letters in the checkpoint folder)",
    )
    run.add_argument("--master", help="Spark master: local[*], spark://HOST:PORT, yarn, k8s://...")
    run.add_argument("-p", "--parallelism", type=int, help="default parallelism of operators")
    run.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting (repeatable)",
    )


def _add_serve(actions: Commands) -> None:
    serve = actions.add_parser(
        "serve",
        help='answer "may this user see these ads?" over HTTP',
        description="Answer GET /v1/allowed?user=42&ads=a,b,c, and POST /v1/allowed for several users. The "
        "page at / describes everything.",
    )
    which = serve.add_mutually_exclusive_group(required=True)
    which.add_argument("--redis", metavar="URL", help="such as redis://localhost:6379/0")
    which.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="checkpoint folder of a job that runs without --redis, to use its embedded Redis",
    )
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    serve.add_argument("--port", type=int, default=8090, help="port to listen on (default: 8090)")
    serve.add_argument(
        "--workers", type=int, default=1, help="number of processes that answer (default: 1)"
    )


def add_demo_command(commands: Commands) -> None:
    """Add `demo`, which is short for `capping demo`."""
    _add_demo(commands).set_defaults(call=_run_demo)


def _add_orders(actions: Commands) -> None:
    for name, text in (
        (
            "rebuild-redis",
            "write everything to Redis again from the job's state, after a loss; all keys cap:{...} of that "
            "database are removed first, even those of another job",
        ),
        ("forget", "erase a user from state and Redis"),
        ("explain", "show what a user has seen, which rules cap it, and until when"),
    ):
        order = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name != "rebuild-redis":
            order.add_argument("user", help="id of the user")
        if name == "explain":
            order.add_argument(
                "ad", nargs="?", help="id of an ad, or another id that rules count (default: all)"
            )
            order.add_argument("--json", action="store_true", help="print JSON")
        order.add_argument(
            "--checkpoint", required=True, metavar="DIR", help="checkpoint folder of the job"
        )
        order.add_argument(
            "--timeout",
            type=float,
            default=300,
            metavar="S",
            help="seconds to wait for the job (default: 300)",
        )


def _add_demo(commands: Commands) -> argparse.ArgumentParser:
    demo = commands.add_parser(
        "demo",
        help="show frequency capping at work, with made-up views and an embedded Redis",
        description="Make up views, cap them, and show what happens. Needs nothing but Python and Java.",
    )
    demo.add_argument(
        "--seconds", type=float, default=30, help="how long to run, in seconds (default: 30)"
    )
    demo.add_argument("--rate", type=int, default=5000, help="views per second (default: 5000)")
    demo.add_argument("--kafka", metavar="HOST:PORT", help="send the views through this Kafka")
    demo.add_argument("--redis", metavar="URL", help="use this Redis instead of an embedded one")
    demo.add_argument(
        "--picture",
        default="capping-demo.png",
        metavar="FILE",
        help="file for a picture of the run (default: capping-demo.png)",
    )
    return demo


def _run(parsed: argparse.Namespace) -> int:
    from millpond.apps.frequency_capping.command.actions import run_capping

    return run_capping(parsed)


def _run_demo(parsed: argparse.Namespace) -> int:
    parsed.action = "demo"
    return _run(parsed)
