"""`millpond capping rebuild-redis`, `forget` and `explain`: orders to a job, whether it runs or not."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from millpond.apps.frequency_capping.command.job import (
    CONTROL,
    JOB_NAME,
    config_of,
    dead_letters_of,
    make_environment,
    make_source,
    redis_of,
    remembered,
)
from millpond.apps.frequency_capping.control import ControlFolder
from millpond.apps.frequency_capping.erase import erase_letters
from millpond.apps.frequency_capping.only_orders import OnlyOrders
from millpond.datastream.connectors.redis.connection import connect, hidden
from millpond.driver.job_folder import is_locked
from millpond.errors import JobExecutionError


def rebuild(parsed: argparse.Namespace) -> int:
    """Carry out `rebuild-redis`: remove all caps from Redis, and have the job write those of its state.
    Return the exit code."""
    arguments = remembered(parsed)
    with redis_of(arguments) as url:
        removed = _remove_caps(url)
        _order(parsed, arguments, url, "republish")
    print(f"{removed:,} keys were removed, and everything that is capped now was written again.")
    return 0


def _remove_caps(url: str) -> int:
    removed = 0
    try:
        client = connect(url)
        for key in client.scan_iter(match="cap:{*}", count=1000):
            removed += client.delete(key)
    except importlib.import_module("redis").RedisError as problem:
        raise JobExecutionError(f"Redis at {hidden(url)} does not answer: {problem}.") from None
    return removed


def forget(parsed: argparse.Namespace) -> int:
    """Carry out `forget`: erase a user from state, Redis, answers and dead letters. Return the exit code."""
    arguments = remembered(parsed)
    # Read first, so that wrong rules are reported before anything is done.
    user_field = config_of(arguments).record_format.name("user")
    with redis_of(arguments) as url:
        _order(parsed, arguments, url, "forget", user=parsed.user)
    ControlFolder(Path(arguments.checkpoint) / CONTROL).erase(parsed.user)
    erased = erase_letters(dead_letters_of(arguments), parsed.user, user_field)
    print(
        f"User {parsed.user} is forgotten: state and Redis hold nothing about them; {erased:,} dead letters "
        "about them were erased."
    )
    return 0


def explain(parsed: argparse.Namespace) -> int:
    """Carry out `explain`: print what is known about a user, and what is capped by which rule until when.
    Return the exit code."""
    arguments = remembered(parsed)
    with redis_of(arguments) as url:
        answers = _order(parsed, arguments, url, "explain", user=parsed.user, ad=parsed.ad)
    if parsed.json:
        print(json.dumps(answers))
        return 0
    if not answers or not (answers[0]["pairs"] or answers[0]["not_counted_yet"]):
        print(
            f"Nothing is known about user {parsed.user}"
            + (f" and {parsed.ad}." if parsed.ad else ".")
        )
        return 0
    _print_answer(parsed.user, answers[0])
    return 0


def _print_answer(user: str, answer: dict[str, Any]) -> None:
    print(f"User {user}, at {time_text(answer['event_time'])}:")
    for pair in answer["pairs"]:
        state = "not capped"
        if pair["capped_since"] is not None:
            until = (
                "forever"
                if pair["released_at"] is None
                else f"until {time_text(pair['released_at'])}"
            )
            state = f"CAPPED since {time_text(pair['capped_since'])}, {until}"
        count = f"{len(pair['views'])} of {pair['limit']} views"
        if pair["rule_gone_until"] is not None:
            state = f"the rule was removed, but keeps counting until {time_text(pair['rule_gone_until'])}"
        print(f"  {pair['member']} by rule '{pair['rule']}': {count}, {state}")
        for view in pair["views"]:
            print(f"    {time_text(view)}")
    if answer["not_counted_yet"]:
        print(f"  {answer['not_counted_yet']} views wait for event time to reach them.")
    if answer["rules_change_at"] is not None:
        print(f"  The rules will change at {time_text(answer['rules_change_at'])}.")


def _order(
    parsed: argparse.Namespace,
    arguments: argparse.Namespace,
    url: str,
    kind: str,
    **content: str | None,
) -> list[dict[str, Any]]:
    """Give an order to the job, wait until it has been carried out, and return the answers. If the job does
    not run, start it for this order, without reading any input."""
    checkpoint = Path(arguments.checkpoint)
    control = ControlFolder(checkpoint / CONTROL)
    order_id = control.give(kind, **content)
    client = None
    give_up_s = time.monotonic() + parsed.timeout
    while (answers := control.answers_to(order_id)) is None:
        if client is None and not is_locked(checkpoint, JOB_NAME):
            print("The job is not running; starting it for this order ...", file=sys.stderr)
            source = OnlyOrders(make_source(arguments))
            settings = ["millpond.input.advance-at-end=false"]
            arguments.settings = [*arguments.settings, *settings]
            environment = make_environment(arguments, config_of(arguments), source, True, url)
            client = environment.execute_async(JOB_NAME)
        if client is not None and client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()  # raises what went wrong
        if time.monotonic() > give_up_s:
            raise JobExecutionError(
                f"The job has not carried out the order within {parsed.timeout:g} s; it will do so when it "
                "can. Use --timeout to wait longer."
            )
        time.sleep(0.05)
    if client is not None:
        client.get_job_execution_result().result()
    return answers


def time_text(time_ms: int) -> str:
    """Return a time in UTC as text, or that there is no time yet."""
    if not 0 < time_ms < 1 << 52:
        return "no time yet"
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(" ", "milliseconds")
