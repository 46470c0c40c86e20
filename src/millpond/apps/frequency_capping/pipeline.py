"""The program: records are validated, filtered and counted per user, and changes go to Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

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
from millpond.datastream.functions import Results
from millpond.datastream.timerservice import TimerService
from millpond.metrics.metricbase import Counter

BAD = OutputTag("bad records")
REFUSED = OutputTag("refused rules")
RULES_DELAY_MS = 5000  # added to a message's time, for its way and for clocks that differ
_IDLE = Duration.of_millis(1000)


@dataclass(frozen=True)
class CappingJob:
    """What a frequency capping job consists of.

    `records` gives lines or messages, which are JSON as bytes or text. `dead_letters` is a folder for records
    and rules that are bad, too late or refused, and `control` one for orders (control.py). `rule_messages`
    gives messages with rules, which are JSON as bytes (rulebook.changed_rules)."""

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
    """Build the job in an environment, and return the stream of changes. They already go to Redis; more sinks
    may be added."""
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


def read_message(data: bytes, sent_ms: int | None) -> object:
    """Return a message with rules. What is not JSON is returned as it is and refused later, and so is an
    order, which may not come this way.

    Unless a message says when it takes effect, that is a little after it was sent. By then it has arrived in
    a live job, so that it takes effect at the same moment of event time whenever both topics are read
    again."""
    try:
        message = load_json(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(message, dict) or is_order(message):
        return data
    if sent_ms is None or sent_ms < 0:  # -1 is Kafka's way to say that there is no time
        return message
    return {"at": sent_ms + RULES_DELAY_MS, **message}


class ReadMessages(ProcessFunction[bytes, object]):
    """Turns the messages of a topic into messages with rules (`read_message`)."""

    def process_element(self, value: bytes, ctx: ProcessFunction.Context) -> list[object]:
        return [read_message(value, ctx.timestamp())]


class CheckMessages(ProcessFunction[object, object]):
    """Sends to a side output what is neither valid rules nor an order, and rules for which something would be
    forgotten too early. It does so once, before messages are broadcast."""

    def __init__(self, lives: TimesToLive) -> None:
        self._lives = lives

    def open(self, runtime_context: RuntimeContext) -> None:
        self._refused = runtime_context.get_metrics_group().counter("refused")

    def process_element(self, value: object, ctx: ProcessFunction.Context) -> list[object]:
        if not is_order(value):
            try:
                message_time(value)
                self._lives.check(changed_rules({}, value).values())
            except RuleError as problem:
                self._refused.inc()
                return [(REFUSED, (str(problem), value))]
        return [value]


def event_time(job: CappingJob) -> WatermarkStrategy:
    """Return the watermark strategy of records: event time is the time in the records. Unless the job runs
    only until the end of its input, event time follows the clock while no records come, so that views age
    out."""
    bound = Duration.of_millis(job.out_of_orderness_ms)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound)
    strategy = strategy.with_timestamp_assigner(_LogTime())
    return strategy if job.until_end else strategy.with_idleness(_IDLE).advance_when_idle()


def time_of_rules() -> WatermarkStrategy:
    """Return the watermark strategy of rules. They have no event time of their own: a batch with rules holds
    event time where it is, and then the rules are idle again. So the first views wait for the first rules."""
    return WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(1))


class _LogTime(TimestampAssigner):
    def extract_timestamp(self, value: Arrival, record_timestamp: int) -> int:
        return value[2]


class ReadRecords(ProcessFunction[bytes | str, Arrival]):
    """Validates records and applies the common filter, before data is distributed (P5)."""

    def __init__(self, record_format: RecordFormat) -> None:
        self._format = record_format

    def open(self, runtime_context: RuntimeContext) -> None:
        self._reader = self._format.reader()
        self._group = runtime_context.get_metrics_group()
        self._records = self._group.counter("records")
        self._filtered = self._group.counter("filtered")
        self._bad = self._group.counter("bad")
        self._reasons: dict[str, Counter] = {}
        self._timers: TimerService | None = None

    def process_element(self, value: bytes | str, ctx: ProcessFunction.Context) -> Results[Arrival]:
        sent_ms = ctx.timestamp()  # None for a line of a file
        is_empty = not value or value.isspace()
        if is_empty and sent_ms is None:
            return None  # an empty line is not a record
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

    def _clock(self, ctx: ProcessFunction.Context, sent_ms: int | None) -> int:
        """Return the time that a record's time must not be far ahead of: the time at which it was sent, if
        that is known. So a message is judged in the same way when it is read again."""
        if sent_ms is not None and sent_ms > 0:  # -1 is Kafka's way to say that there is no time
            return sent_ms
        if self._timers is None:
            self._timers = ctx.timer_service()  # the same for all records
        return self._timers.current_processing_time()


class RedisCommands:
    """Turns a change into commands for Redis, where `cap:{USER}` is the set of what a user must not see.
    After `ttl_ms` without a change, Redis forgets a user; None means never."""

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
    """Return the key of the set of what a user must not see. The braces keep a user's keys on one node of a
    Redis cluster."""
    return f"cap:{{{user}}}"


def dead_letter(bad: tuple[str, bytes | str]) -> str:
    """Return the dead letter for a bad record, given with the reason, as a line of JSON."""
    reason, record = bad
    return json.dumps({"reason": reason, **shown(record)})


def late_letter(arrival: Arrival) -> str:
    """Return the dead letter for a view that came too late, as a line of JSON."""
    names = ("user", "impression", "time", "event", "ad", "record")
    fields = dict(zip(names, arrival, strict=True))
    return json.dumps({"reason": "too late", **{n: v for n, v in fields.items() if v is not None}})


def refused_letter(refused: tuple[str, object]) -> str:
    """Return the dead letter for a refused message with rules, given with the reason, as a line of JSON."""
    reason, message = refused
    record = shown(message) if isinstance(message, bytes) else {"record": message}
    return json.dumps({"reason": f"rule refused: {reason}", **record})


def _letters_sink(folder: str) -> FileSink:
    names = OutputFileConfig.builder().with_part_prefix("dead").with_part_suffix(".jsonl").build()
    builder = FileSink.for_row_format(folder, Encoder.simple_string_encoder())
    builder = builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    return builder.with_output_file_config(names).build()
