"""`millpond capping ...`: frequency capping as a product."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from millpond.apps.frequency_capping import (
    CappingConfig,
    CappingJob,
    build,
    default_config,
    load_config,
)
from millpond.apps.frequency_capping.control import ControlFolder
from millpond.apps.frequency_capping.only_orders import OnlyOrders
from millpond.apps.frequency_capping.records import Messages
from millpond.apps.frequency_capping.rules import RuleError, parse_rules, refuse_longer
from millpond.apps.frequency_capping.windows import WindowError, parse_duration
from millpond.common import Configuration, Duration, RestartStrategies
from millpond.common.job_client import JobClient
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.connectors.base import Source
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millpond.datastream.connectors.redis import connect, hidden
from millpond.errors import JobExecutionError, ProgramError, SetupError
from millpond.runtime.job_folder import is_locked

_JOB_NAME = "frequency capping"
_DEAD_LETTERS = "dead-letters"
_CONTROL = "control"
_ARGUMENTS = "capping.json"
_REDIS_VARIABLE = "MILLPOND_CAPPING_REDIS"
_KEPT = (
    *("input", "begin", "rules", "rules_topic", "redis", "redis_ttl", "checkpoint", "dead_letters"),
    *("out_of_orderness", "master", "parallelism", "settings"),
)
_FOR_EVER, _RESTART_PAUSE_MS = 1 << 30, 2000
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
    actions = {
        "run": _run,
        "serve": _serve,
        "demo": _demo,
        "rebuild-redis": _rebuild,
        "forget": _forget,
        "explain": _explain,
    }
    return actions[parsed.action](parsed)


def _run(parsed: argparse.Namespace) -> int:
    _make_absolute(parsed)
    source = _source(parsed)
    environment = _environment(parsed, source, parsed.until_end)
    if is_locked(Path(parsed.checkpoint), _JOB_NAME):
        raise ProgramError(f"--checkpoint {parsed.checkpoint}: a job runs there already.")
    _remember(parsed)
    client = environment.execute_async(_JOB_NAME)
    try:
        _watch(client)
    except KeyboardInterrupt:
        print("Stopping; the job goes on from here when it is started again.", file=sys.stderr)
        client.cancel().result()
        return 130
    client.get_job_execution_result().result()
    _report(client, _dead_letters(parsed))
    return 0


def _make_absolute(parsed: argparse.Namespace) -> None:
    """Orders may be given from another folder."""
    for name in ("checkpoint", "rules", "dead_letters"):
        if getattr(parsed, name) is not None:
            setattr(parsed, name, str(Path(getattr(parsed, name)).absolute()))
    if not parsed.input.startswith("kafka://"):
        parsed.input = str(Path(parsed.input).absolute())


def _environment(
    parsed: argparse.Namespace, source: Source, until_end: bool
) -> StreamExecutionEnvironment:
    """With the job in it."""
    config = load_config(parsed.rules) if parsed.rules else default_config()
    try:
        out_of_orderness_ms = parse_duration(parsed.out_of_orderness)
    except WindowError as problem:
        raise ProgramError(f"--out-of-orderness: {problem}.") from None
    configuration = _configuration(parsed, until_end)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    restarts = 3 if until_end else _FOR_EVER
    environment.get_config().set_restart_strategy(
        RestartStrategies.fixed_delay_restart(restarts, _RESTART_PAUSE_MS)
    )
    messages = None
    if parsed.rules_topic:
        messages = _kafka_source("--rules-topic", parsed.rules_topic, "earliest")
    job = CappingJob(
        source,
        config,
        parsed.rules,
        parsed.redis,
        _dead_letters(parsed),
        str(Path(parsed.checkpoint) / _CONTROL),
        out_of_orderness_ms,
        until_end,
        messages,
        _redis_ttl_ms(parsed.redis_ttl, config),
    )
    build(environment, job)
    return environment


def _redis_ttl_ms(text: str | None, config: CappingConfig) -> int | None:
    if text is None:
        return None
    try:
        ttl_ms = parse_duration(text)
    except WindowError as problem:
        raise ProgramError(f"--redis-ttl: {problem}.") from None
    try:
        refuse_longer(parse_rules(config.rules).values(), ttl_ms)
    except RuleError as problem:
        raise ProgramError(f"--redis-ttl {text}: {problem}.") from None
    return ttl_ms


def _dead_letters(parsed: argparse.Namespace) -> str:
    return parsed.dead_letters or str(Path(parsed.checkpoint) / _DEAD_LETTERS)


def _serve(parsed: argparse.Namespace) -> int:
    try:
        import uvicorn

        from millpond.apps.frequency_capping.lookup import make_app
    except ImportError as problem:
        raise SetupError(
            f"The look-up service needs {problem.name}: pip install 'millpond[capping]'."
        ) from None
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


# --- orders ------------------------------------------------------------------------------------------


def _rebuild(parsed: argparse.Namespace) -> int:
    arguments = _remembered(parsed)
    removed = _remove_caps(arguments.redis)
    _order(parsed, arguments, "republish")
    print(f"{removed:,} keys were removed, and what is capped now was written anew.")
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


def _forget(parsed: argparse.Namespace) -> int:
    _order(parsed, _remembered(parsed), "forget", user=parsed.user)
    print(f"User {parsed.user} is forgotten: state and Redis have nothing of them.")
    return 0


def _explain(parsed: argparse.Namespace) -> int:
    answers = _order(parsed, _remembered(parsed), "explain", user=parsed.user, ad=parsed.ad)
    if parsed.json:
        print(json.dumps(answers))
        return 0
    if not answers or not (answers[0]["pairs"] or answers[0]["not_counted_yet"]):
        print(
            f"Nothing is known of user {parsed.user}" + (f" and {parsed.ad}." if parsed.ad else ".")
        )
        return 0
    answer = answers[0]
    print(f"User {parsed.user}, at {_time(answer['event_time'])}:")
    for pair in answer["pairs"]:
        state = "not capped"
        if pair["capped_since"] is not None:
            until = (
                "for ever" if pair["released_at"] is None else f"until {_time(pair['released_at'])}"
            )
            state = f"CAPPED since {_time(pair['capped_since'])}, {until}"
        count = f"{len(pair['views'])} of {pair['limit']} views"
        print(f"  {pair['member']} by rule '{pair['rule']}': {count}, {state}")
        for view in pair["views"]:
            print(f"    {_time(view)}")
    if answer["not_counted_yet"]:
        print(f"  {answer['not_counted_yet']} views wait for event time to come to them.")
    if answer["rules_change_at"] is not None:
        print(f"  Other rules will be in force from {_time(answer['rules_change_at'])} on.")
    return 0


def _time(time_ms: int) -> str:
    if not 0 < time_ms < 1 << 52:
        return "no time yet"
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(" ", "milliseconds")


def _order(
    parsed: argparse.Namespace, arguments: argparse.Namespace, kind: str, **content: Any
) -> list[dict[str, Any]]:
    """Give an order to the job, wait until it is done, and return the answers. If the job does not run, it is
    started for that, without reading anything."""
    checkpoint = Path(parsed.checkpoint)
    arguments.checkpoint = str(checkpoint.absolute())
    control = ControlFolder(checkpoint / _CONTROL)
    own = control.give(kind, **content)
    client = None
    give_up_s = time.monotonic() + parsed.timeout
    while (answers := control.answers_to(own)) is None:
        if client is None and not is_locked(checkpoint, _JOB_NAME):
            print("The job does not run; starting it for this order ...", file=sys.stderr)
            source = OnlyOrders(_source(arguments))
            settings = ["millpond.input.advance-at-end=false"]
            arguments.settings = [*arguments.settings, *settings]
            client = _environment(arguments, source, True).execute_async(_JOB_NAME)
        if client is not None and client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()  # tells what went wrong
        if time.monotonic() > give_up_s:
            raise JobExecutionError(
                f"The job has not done this within {parsed.timeout:g} s; it will when it gets to it."
            )
        time.sleep(0.05)
    if client is not None:
        client.get_job_execution_result().result()
    control.forget(own)
    return answers


def _remember(parsed: argparse.Namespace) -> None:
    """For orders: what the job was started with."""
    path = Path(parsed.checkpoint) / _ARGUMENTS
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: getattr(parsed, name) for name in _KEPT}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"version": 1, **kept}, file)  # it may have a password of Redis
    os.replace(aside, path)


def _remembered(parsed: argparse.Namespace) -> argparse.Namespace:
    path = Path(parsed.checkpoint) / _ARGUMENTS
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ProgramError(
            f"--checkpoint {parsed.checkpoint}: frequency capping has not run there: there is no "
            f"{path.name}."
        ) from None
    return argparse.Namespace(**{name: content[name] for name in _KEPT})


def _configuration(parsed: argparse.Namespace, until_end: bool) -> Configuration:
    settings: dict[str, Any] = {
        "execution.checkpointing.dir": parsed.checkpoint,
        "millpond.input.stop-at-end": until_end,
    }
    if parsed.master:
        settings["millpond.master"] = parsed.master
    if parsed.parallelism:
        settings["parallelism.default"] = parsed.parallelism
    for setting in parsed.settings:
        key, found, value = setting.partition("=")
        if not found:
            raise ProgramError(f"-D takes KEY=VALUE, not '{setting}'.")
        settings[key.strip()] = value
    return Configuration.from_dict(settings)


def _source(parsed: argparse.Namespace) -> Source:
    place: str = parsed.input
    if place.startswith("kafka://"):
        return _kafka_source("--input", place, parsed.begin)
    if not Path(place).exists():
        raise ProgramError(f"--input {place}: there is no such folder or file.")
    lines = FileSource.for_record_stream_format(StreamFormat.binary_line_format(), place)
    ours = [own for own in (parsed.checkpoint, _dead_letters(parsed), parsed.rules) if own]
    return lines.exclude(*ours).monitor_continuously(Duration.of_millis(1000)).build()


def _kafka_source(option: str, place: str, begin: str) -> Source:
    servers, _, topic = place.removeprefix("kafka://").partition("/")
    if not servers or not topic or "/" in topic:
        raise ProgramError(f"{option} {place}: it must be kafka://HOST:PORT/TOPIC.")
    if begin in ("earliest", "latest"):
        start = getattr(KafkaOffsetsInitializer, begin)()
    elif begin.isdecimal() and begin.isascii():
        start = KafkaOffsetsInitializer.timestamp(int(begin))
    else:
        raise ProgramError(f"--begin must be earliest, latest, or a time in ms, not '{begin}'.")
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_starting_offsets(start)
        .set_value_only_deserializer(Messages())
        .build()
    )


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
    print(f"Redis is as of {_time(now_ms)}, in event time.")
    if counts["bad"] or counts["late"]:
        print(f"Bad and late records are in {dead_letters}.")
