"""The program: records in, validated and filtered, counted per user, changes out to Redis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from millpond.apps.frequency_capping.answers import AnswerSink
from millpond.apps.frequency_capping.capping import CapUsers
from millpond.apps.frequency_capping.config import CappingConfig
from millpond.apps.frequency_capping.control import ControlFolder, done, is_order
from millpond.apps.frequency_capping.records import (
    Arrival,
    BadRecord,
    RecordFormat,
    load_json,
    shown,
)
from millpond.apps.frequency_capping.rulebook import changed_rules, message_time
from millpond.apps.frequency_capping.rules import RuleError, TimesToLive
from millpond.apps.frequency_capping.rules_source import RulesSource
from millpond.apps.frequency_capping.user_state import (
    ANSWERS,
    CAP,
    FORGET,
    LATE,
    RULES,
    STILL,
    Change,
)
from millpond.common import Duration, Encoder, WatermarkStrategy
from millpond.common.watermark_strategy import TimestampAssigner
from millpond.datastream import (
    DataStream,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.connectors.base import Source
from millpond.datastream.connectors.file_system import FileSink, OutputFileConfig, RollingPolicy
from millpond.datastream.connectors.redis import Command, RedisSink

BAD = OutputTag("bad records")
REFUSED = OutputTag("refused rules")
RULES_DELAY_MS = 5000  # of messages: for their way, and clocks that differ
_IDLE = Duration.of_millis(1000)


@dataclass(frozen=True)
class CappingJob:
    """`records` gives lines or messages: JSON as bytes or text. `dead_letters`: a folder for what is bad, too
    late or refused. `control`: one for orders (control.py). `rule_messages`: gives JSON as bytes
    (rules.changed_rules)."""

    records: Source
    config: CappingConfig
    rules_path: str | None
    redis_url: str
    dead_letters: str
    control: str
    out_of_orderness_ms: int = 0
    until_end: bool = False
    rule_messages: Source | None = None
    lives: TimesToLive = field(default_factory=TimesToLive)


def build(environment: StreamExecutionEnvironment, job: CappingJob) -> DataStream:
    """The changes, after Redis has been given to a sink; others may follow."""
    record_format = job.config.record_format
    parsed = (
        environment.from_source(job.records, WatermarkStrategy.no_watermarks(), "records")
        .uid("records")
        .process(ReadRecords(record_format))
        .uid("read records")
        .name("read records")
    )
    views = parsed.assign_timestamps_and_watermarks(event_time(job))
    told = RulesSource(job.rules_path, job.control, job.lives, job.config.names_rules)
    rules = environment.from_source(told, time_of_rules(), "rules").uid("rules")
    done_orders = rules.filter(is_order).uid("orders").map(done).uid("done orders")
    if job.rule_messages is not None:
        sent = environment.from_source(job.rule_messages, time_of_rules(), "rule messages")
        read = sent.uid("rule messages").process(ReadMessages()).uid("read rule messages")
        rules = rules.union(read)
    rules = rules.process(CheckMessages(job.lives)).uid("check rules").name("check rules")
    changes = (
        views.key_by(lambda arrival: arrival[0])
        .connect(rules.broadcast(RULES))
        .process(CapUsers(record_format, job.lives))
        .uid("cap users")
        .name("cap users")
    )
    commands = RedisCommands(job.lives.redis_ms)
    changes.sink_to(RedisSink(job.redis_url, commands, last_wins=True)).uid("redis").name("redis")
    aside = parsed.get_side_output(BAD).map(dead_letter).uid("bad records")
    late = changes.get_side_output(LATE).map(late_letter).uid("late records")
    refused = rules.get_side_output(REFUSED).map(refused_letter).uid("refused rules")
    aside.union(late, refused).sink_to(_letters_sink(job.dead_letters)).uid("dead letters")
    answers = str(ControlFolder(job.control).answers)
    told_back = changes.get_side_output(ANSWERS).union(done_orders)
    told_back.sink_to(AnswerSink(answers)).uid("answers").name("answers")
    return changes


def read_message(data: bytes, sent_ms: int | None) -> Any:
    """A message that is no JSON is refused later, as it is; so is an order, which may not come this way. It
    counts from when it was sent, a little later: by then it is here, live, so that it counts from the same
    moment of event time on whenever both topics are read again. Unless it says from when."""
    try:
        message = load_json(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(message, dict) or is_order(message):
        return data
    if sent_ms is None or sent_ms < 0:  # Kafka has -1 for none
        return message
    return {"at": sent_ms + RULES_DELAY_MS, **message}


class ReadMessages(ProcessFunction):
    def process_element(self, value: bytes, ctx: Any) -> Iterable[Any]:
        return [read_message(value, ctx.timestamp())]


class CheckMessages(ProcessFunction):
    """Puts messages aside that are no rules, once for all; and rules for which something is
    forgotten too early."""

    def __init__(self, lives: TimesToLive) -> None:
        self._lives = lives

    def open(self, runtime_context: RuntimeContext) -> None:
        self._refused = runtime_context.get_metrics_group().counter("refused")

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        if not is_order(value):
            try:
                message_time(value)
                self._lives.check(changed_rules({}, value).values())
            except RuleError as problem:
                self._refused.inc()
                return [(REFUSED, (str(problem), value))]
        return [value]


def event_time(job: CappingJob) -> WatermarkStrategy:
    """The records' own time. In a job that goes on and on it follows the clock while none come, so that views
    age out."""
    bound = Duration.of_millis(job.out_of_orderness_ms)
    own = WatermarkStrategy.for_bounded_out_of_orderness(bound)
    strategy = own.with_timestamp_assigner(_LogTime())
    return strategy if job.until_end else strategy.with_idleness(_IDLE).advance_when_idle()


def time_of_rules() -> WatermarkStrategy:
    """None of their own: a batch with rules holds event time where it is, and then they are idle again. So
    the first views wait for the first rules."""
    return WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(1))


class _LogTime(TimestampAssigner):
    def extract_timestamp(self, value: Arrival, record_timestamp: int) -> int:
        return value[2]


class ReadRecords(ProcessFunction):
    """Validation and the common filter, before data is spread (P5)."""

    def __init__(self, record_format: RecordFormat) -> None:
        self._format = record_format

    def open(self, runtime_context: RuntimeContext) -> None:
        self._reader = self._format.reader()
        self._group = runtime_context.get_metrics_group()
        self._records = self._group.counter("records")
        self._filtered = self._group.counter("filtered")
        self._bad = self._group.counter("bad")
        self._reasons: dict[str, Any] = {}
        self._timers: Any = None

    def process_element(self, value: bytes | str, ctx: Any) -> Iterable[Any] | None:
        sent_ms = ctx.timestamp()  # of a message; a line of a file has none
        is_empty = not value or value.isspace()
        if is_empty and sent_ms is None:
            return None  # an empty line is nothing
        self._records.inc()
        try:
            if is_empty:
                raise BadRecord("empty")
            arrival = self._reader.read(value, self._clock(ctx, sent_ms))
        except BadRecord as problem:
            reason = str(problem)
            self._bad.inc()
            if reason not in self._reasons:
                self._reasons[reason] = self._group.counter(f"bad: {reason}")
            self._reasons[reason].inc()
            return [(BAD, (reason, value))]
        if arrival is None:
            self._filtered.inc()
            return None
        return (arrival,)

    def _clock(self, ctx: Any, sent_ms: int | None) -> int:
        """What a record's time may not be far ahead of: the time at which it was sent, as far as that is
        known. So a message is as good or bad when it is read again."""
        if sent_ms is not None and sent_ms > 0:  # Kafka has -1 for none
            return sent_ms
        if self._timers is None:
            self._timers = ctx.timer_service()  # the same for all records
        return self._timers.current_processing_time()  # type: ignore[no-any-return]


class RedisCommands:
    """`cap:{USER}` is the set of what the user must not see. `ttl_ms`: Redis forgets a user of whom it has
    not been told anything for so long."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._expire_s = None if ttl_ms is None else max(1, ttl_ms // 1000)

    def __call__(self, change: Change) -> Iterator[Command]:
        user, member, action = change[:3]
        key = redis_key(user)
        if action in (CAP, STILL):
            yield "SADD", key, member
            if self._expire_s is not None:
                yield "EXPIRE", key, self._expire_s
        elif action == FORGET:
            yield "DEL", key
        else:
            yield "SREM", key, member


def redis_key(user: str) -> str:
    return f"cap:{{{user}}}"


def dead_letter(bad: tuple[str, bytes | str]) -> str:
    reason, record = bad
    return json.dumps({"reason": reason, **shown(record)})


def late_letter(arrival: Arrival) -> str:
    names = ("user", "impression", "time", "event", "ad", "record")
    fields = dict(zip(names, arrival, strict=True))
    return json.dumps({"reason": "too late", **{n: v for n, v in fields.items() if v is not None}})


def refused_letter(refused: tuple[str, Any]) -> str:
    reason, message = refused
    record = shown(message) if isinstance(message, bytes) else {"record": message}
    return json.dumps({"reason": f"rule refused: {reason}", **record})


def _letters_sink(folder: str) -> FileSink:
    names = OutputFileConfig.builder().with_part_prefix("dead").with_part_suffix(".jsonl").build()
    builder = FileSink.for_row_format(folder, Encoder.simple_string_encoder())
    builder = builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    return builder.with_output_file_config(names).build()
