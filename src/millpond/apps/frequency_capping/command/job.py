"""Builds the frequency capping job that a command line describes. The arguments are kept beside the job's
state, for orders to it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millpond.apps.frequency_capping import (
    CappingConfig,
    CappingJob,
    RuleError,
    build,
    default_config,
    load_config,
)
from millpond.apps.frequency_capping.embedded import embedded_redis, embedded_url
from millpond.apps.frequency_capping.records import Messages
from millpond.apps.frequency_capping.rules import GONE_RULE_MS, TimesToLive, parse_rules
from millpond.apps.frequency_capping.windows import WindowError, parse_duration
from millpond.common import Configuration, Duration, RestartStrategies
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.connectors.base import Source
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.connectors.hybrid_source import HybridSource
from millpond.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millpond.driver.job_folder import is_locked
from millpond.errors import ProgramError

JOB_NAME = "frequency capping"
CONTROL = "control"
_DEAD_LETTERS = "dead-letters"
_ARGUMENTS = "capping.json"
_NAMES_RULES = "names_rules"
_REDIS = "redis"
# Each costs a batch, and so the latency of caps, a few milliseconds; but no job can have more subtasks.
_KEY_GROUPS = 32
_KEPT = (
    *("input", "history", "begin", "rules", "rules_topic", "redis", "redis_ttl", "state_ttl"),
    *(
        "rules_grace",
        "checkpoint",
        "dead_letters",
        "out_of_orderness",
        "master",
        "parallelism",
        "settings",
    ),
)
_FOR_EVER, _RESTART_PAUSE_MS = 1 << 30, 2000


@contextmanager
def redis_of(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the URL of the job's Redis. A job that was given none has an embedded one beside its state; if
    the job does not run, the embedded Redis runs until the end of the block."""
    folder = Path(arguments.checkpoint)
    if arguments.redis is not None:
        yield arguments.redis
    elif is_locked(folder, JOB_NAME):
        yield own_redis_url(folder)
    else:
        with embedded_redis(folder / _REDIS, keeps=True) as url:
            yield url


def own_redis_url(checkpoint: Path) -> str:
    """Return the URL of the embedded Redis of a job that was started without a Redis."""
    return embedded_url(checkpoint / _REDIS)


def make_absolute(parsed: argparse.Namespace) -> None:
    """Make the paths in a command line absolute, because orders may be given from another folder."""
    for name in ("checkpoint", "rules", "dead_letters", "history"):
        if getattr(parsed, name) is not None:
            setattr(parsed, name, str(Path(getattr(parsed, name)).absolute()))
    if not parsed.input.startswith("kafka://"):
        parsed.input = str(Path(parsed.input).absolute())


def config_of(parsed: argparse.Namespace) -> CappingConfig:
    """Return what the file of rules says, or the default without one. Raise ProgramError if `rules:` has
    vanished from it since the job was last started: the file may be cut off, and what it says about records
    incomplete."""
    if not parsed.rules:
        return default_config()
    config = load_config(parsed.rules)
    path = Path(parsed.checkpoint) / _ARGUMENTS
    if not config.names_rules and path.exists() and _content_of(path).get(_NAMES_RULES):
        raise ProgramError(
            f"--rules {parsed.rules}: `rules:` is missing, although it was there when the job was last "
            "started. Put it back; if there should be no rules at all, write `rules: []`."
        )
    return config


def make_environment(
    parsed: argparse.Namespace,
    config: CappingConfig,
    source: Source,
    until_end: bool,
    redis_url: str,
) -> StreamExecutionEnvironment:
    """Return an environment with the job in it, not started. Raise ProgramError if an argument is wrong."""
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
        redis_url,
        dead_letters_of(parsed),
        str(Path(parsed.checkpoint) / CONTROL),
        out_of_orderness_ms,
        until_end,
        messages,
        _times_to_live(parsed, config),
    )
    build(environment, job)
    return environment


def _times_to_live(parsed: argparse.Namespace, config: CappingConfig) -> TimesToLive:
    found: dict[str, int | None] = {}
    for option in ("redis_ttl", "state_ttl", "rules_grace"):
        text = getattr(parsed, option)
        try:
            found[option] = None if text is None else parse_duration(text)
        except WindowError as problem:
            raise ProgramError(f"--{option.replace('_', '-')}: {problem}.") from None
    # None if the arguments were kept by a version without this option.
    grace_ms = found["rules_grace"]
    lives = TimesToLive(
        found["redis_ttl"], found["state_ttl"], GONE_RULE_MS if grace_ms is None else grace_ms
    )
    try:
        lives.check(parse_rules(config.rules).values())
    except RuleError as problem:
        raise ProgramError(f"{str(problem)[0].upper()}{str(problem)[1:]}.") from None
    return lives


def dead_letters_of(parsed: argparse.Namespace) -> str:
    """Return the folder for dead letters."""
    return parsed.dead_letters or str(Path(parsed.checkpoint) / _DEAD_LETTERS)


def remember(parsed: argparse.Namespace, config: CappingConfig) -> None:
    """Keep the arguments that the job was started with, for orders and for the next start."""
    path = Path(parsed.checkpoint) / _ARGUMENTS
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: getattr(parsed, name) for name in _KEPT}
    kept[_NAMES_RULES] = config.names_rules
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"version": 1, **kept}, file)  # private, as it may contain a password of Redis
    os.replace(aside, path)


def remembered(parsed: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments that the job with this checkpoint folder was last started with. Raise ProgramError
    if none ran there."""
    content = _content_of(Path(parsed.checkpoint) / _ARGUMENTS)
    found = argparse.Namespace(**{name: content.get(name) for name in _KEPT})
    found.checkpoint = str(Path(parsed.checkpoint).absolute())  # it may have been moved
    return found


def _content_of(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise ProgramError(
            f"--checkpoint {path.parent}: frequency capping has not run there, because there is no valid "
            f"{path.name}."
        )
    return content


def _configuration(parsed: argparse.Namespace, until_end: bool) -> Configuration:
    settings: dict[str, object] = {
        "execution.checkpointing.dir": parsed.checkpoint,
        "millpond.input.stop-at-end": until_end,
        "millpond.order-across-keys": False,  # users are counted one by one
    }
    if parsed.master:
        settings["millpond.master"] = parsed.master
    if parsed.parallelism:
        settings["parallelism.default"] = parsed.parallelism
    # Set without -p, too, because the same job may be started with and without it.
    if (parsed.parallelism or 0) <= _KEY_GROUPS:
        settings["pipeline.max-parallelism"] = _KEY_GROUPS
    for setting in parsed.settings:
        key, found, value = setting.partition("=")
        if not found:
            raise ProgramError(f"-D takes KEY=VALUE, not '{setting}'.")
        settings[key.strip()] = value
    return Configuration.from_dict(settings)


def make_source(parsed: argparse.Namespace) -> Source:
    """Return the source of records that --input, --history and --begin describe. Raise ProgramError if they
    are wrong."""
    location: str = parsed.input
    if not location.startswith("kafka://"):
        if parsed.history is not None:
            raise ProgramError("--history is read before a topic, so --input must be a topic.")
        return _lines("--input", location, parsed, goes_on=True)
    topic = _kafka_source("--input", location, parsed.begin)
    if parsed.history is None:
        return topic
    past = _lines("--history", parsed.history, parsed, goes_on=False)
    return HybridSource.builder(past).add_source(topic).build()


def _lines(option: str, location: str, parsed: argparse.Namespace, goes_on: bool) -> Source:
    if not Path(location).exists():
        raise ProgramError(f"{option} {location}: there is no such folder or file.")
    lines = FileSource.for_record_stream_format(StreamFormat.binary_line_format(), location)
    ours = [path for path in (parsed.checkpoint, dead_letters_of(parsed), parsed.rules) if path]
    lines = lines.exclude(*ours)
    return (lines.monitor_continuously(Duration.of_millis(1000)) if goes_on else lines).build()


def _kafka_source(option: str, location: str, begin: str) -> Source:
    servers, _, topic = location.removeprefix("kafka://").partition("/")
    if not servers or not topic or "/" in topic:
        raise ProgramError(f"{option} {location}: it must be kafka://HOST:PORT/TOPIC.")
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
