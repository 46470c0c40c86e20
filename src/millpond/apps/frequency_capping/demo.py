"""Shows frequency capping at work, with made-up views and an embedded Redis; a terminal shows what happens.

millpond capping demo                                     everything on this machine, for 30 s
millpond capping demo --kafka HOST:PORT --redis URL       through a Kafka and a Redis of yours
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from millpond.apps.frequency_capping.config import CappingConfig
from millpond.apps.frequency_capping.demo_view import Row, Seen, draw, line, report, screen
from millpond.apps.frequency_capping.embedded import embedded_redis
from millpond.apps.frequency_capping.pipeline import CappingJob, build
from millpond.apps.frequency_capping.records import RecordFormat
from millpond.apps.frequency_capping.user_state import CAP, Change
from millpond.common import Configuration
from millpond.common.job_client import JobClient
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.connectors.base import (
    Epoch,
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitWork,
    TwoPhaseSink,
)
from millpond.datastream.connectors.redis.connection import connect
from millpond.datastream.functions import RuntimeContext, SinkContext
from millpond.errors import JobExecutionError

RULES = [
    {"name": "3 of an ad in 10 s", "level": "ad", "limit": 3, "window": "10s"},
    {"name": "8 of a campaign in 20 s", "level": "campaign", "limit": 8, "window": "20s"},
]
_USERS, _ADS, _CAMPAIGNS = 4000, 12, 3
_OUR_KEYS = "cap:{demo-*}"
# (the driver's time in ms, event times of caps), from the probe, which commits in this process
_told: list[tuple[int, list[int]]] = []


class RedisClient(Protocol):
    """The part of a Redis client that the demo uses."""

    def scan_iter(self, *, match: str, count: int) -> Iterator[bytes]:
        """Yield the keys that match a pattern."""

    def smembers(self, name: bytes) -> set[bytes]:
        """Return the members of a set."""


def made_up_view(number: int, time_ms: int) -> bytes:
    """Return a record, always the same for the same number and time. A few users see far more than others,
    and one record in 500 is broken."""
    chance = random.Random(number)
    if chance.random() < 0.002:
        return b'{"user_no": broken'
    user = int(_USERS * chance.random() ** 3)
    ad = chance.randrange(_ADS)
    view = {"user_no": f"demo-{user}", "da_id": f"ad-{ad}", "campaign_id": f"c{ad % _CAMPAIGNS}"}
    return json.dumps({**view, "log_time": time_ms, "impression_id": number}).encode()


class MadeUpViews(Source):
    """Makes up `rate` views a second, by the clock. A batch reads (first number, its time, how many, the step
    from one number to the next) of a split."""

    bounded = False
    endless = True

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _Clock(self._rate, parallelism)

    def read(self, arguments: tuple[int, int, int, int]) -> Iterator[tuple[bytes, int | None]]:
        first, time_ms, count, step = arguments
        for number in range(count):
            at_ms = time_ms + number * step * 1000 // self._rate
            yield made_up_view(first + number * step, at_ms), None


class _Clock(SplitEnumerator):
    def __init__(self, rate: int, parallelism: int) -> None:
        super().__init__()
        self._rate, self._splits = rate, parallelism
        self._begin_ms = time.time_ns() // 1_000_000
        self._made = 0

    def split_count(self) -> int:
        return self._splits

    def poll(self, max_records: int) -> list[SplitWork]:
        due = (time.time_ns() // 1_000_000 - self._begin_ms) * self._rate // 1000 - self._made
        each = min(due, max_records) // self._splits
        if each < 1:
            return []
        works = []
        for split in range(self._splits):
            at_ms = self._begin_ms + (self._made + split) * 1000 // self._rate
            works.append(SplitWork(split, (self._made + split, at_ms, each, self._splits)))
        self._made += each * self._splits
        return works

    def position(self) -> tuple[int, int]:
        return self._begin_ms, self._made

    def restore(self, position: tuple[int, int]) -> None:
        self._begin_ms, self._made = position

    def ended(self) -> list[bool]:
        return [False] * self._splits

    def next_poll_in_ms(self) -> int | None:
        return 50


class Probe(TwoPhaseSink):
    """Notes the event times of caps when their epoch is committed, right after Redis was written."""

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Times()

    def commit(self, epoch: Epoch, messages: list[list[int]]) -> None:
        _told.append((time.time_ns() // 1_000_000, [at for message in messages for at in message]))


class _Times(SinkWriter):
    def __init__(self) -> None:
        self._times: list[int] = []

    def write(self, value: Change, context: SinkContext) -> None:
        if value[2] == CAP:
            self._times.append(value[3])

    def prepare(self) -> list[int]:
        return self._times


def run_demo(
    seconds: float, rate: int, kafka: str | None, redis_url: str | None, picture: str
) -> int:
    """Run the demo and return the exit code. `rate` is in views per second. Without `kafka` (HOST:PORT) views
    come straight from a source; without `redis_url` there is an embedded Redis. A picture of the run is drawn
    to the file `picture`."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-demo-"))
    try:
        with ExitStack() as stack:
            if redis_url is None:
                url = stack.enter_context(embedded_redis(folder / "redis"))
            else:
                url = redis_url
                stack.callback(remove_caps, url)
            source: Source = MadeUpViews(rate)
            if kafka is not None:
                source = stack.enter_context(through_kafka(kafka, rate))
            return _run(seconds, rate, source, url, picture, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(seconds: float, rate: int, source: Source, url: str, picture: str, folder: Path) -> int:
    what = f"{rate:,} views/s of {_ADS} ads by {_USERS:,} users"
    names = " and ".join(str(rule["name"]) for rule in RULES)
    print(f"Frequency capping: {what}, capped at {names}.")
    print("Starting Spark ...", flush=True)
    configuration = {
        "execution.checkpointing.dir": str(folder / "state"),
        "parallelism.default": 2,
        "pipeline.max-parallelism": 32,
        "millpond.order-across-keys": False,  # users are counted one by one
    }
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"millpond.master": "local[2]", **configuration})
    )
    rules = folder / "rules.yaml"
    rules.write_text(json.dumps({"rules": RULES}))  # JSON is YAML
    config = CappingConfig(RULES, RecordFormat())
    dead_letters, control = str(folder / "dead-letters"), str(folder / "control")
    job = CappingJob(source, config, str(rules), url, dead_letters, control)
    build(environment, job).sink_to(Probe()).uid("probe")
    client = environment.execute_async("frequency capping demo")
    with connect(url) as redis:
        try:
            seen = _watch(client, redis, seconds)
        except KeyboardInterrupt:
            client.cancel().result()
            print("\nStopped.")
            return 130
    client.cancel().result()
    print(f"\n{report(seen)}")
    print(draw(seen, picture, f"Frequency capping: {what}"))
    return 0


def _watch(client: JobClient, redis: RedisClient, seconds: float) -> Seen:
    while not client.get_accumulators().result().get("read records.records"):
        if client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()
        time.sleep(0.05)
    seen, begin_s, next_line_s = Seen(), time.monotonic(), 0.0
    is_terminal = sys.stdout.isatty()
    while (passed_s := time.monotonic() - begin_s) < seconds:
        if client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()
        seen.rows.append(_look(client, redis, passed_s))
        if is_terminal:
            lines = screen(seen, seconds)
            back = f"\x1b[{len(lines)}F" if len(seen.rows) > 1 else "\n"
            print(back + "".join(f"\x1b[2K{line}\n" for line in lines), end="", flush=True)
        elif passed_s >= next_line_s:
            print(line(seen), flush=True)
            next_line_s += 5
        time.sleep(0.5)
    return seen


def _look(client: JobClient, redis: RedisClient, passed_s: float) -> Row:
    metrics = client.get_accumulators().result()
    fresh, _told[:] = list(_told), []
    keys = list(redis.scan_iter(match=_OUR_KEYS, count=1000))
    watermark_ms = int(metrics.get("cap users.currentInputWatermark", 0))
    return Row(
        passed_s,
        records=int(metrics.get("read records.records", 0)),
        bad=int(metrics.get("read records.bad", 0)),
        caps=int(metrics.get("cap users.caps", 0)),
        uncaps=int(metrics.get("cap users.uncaps", 0)),
        users=len(keys),
        behind_s=max(0.0, time.time() - watermark_ms / 1000) if watermark_ms > 0 else 0.0,
        latencies_ms=[now_ms - at_ms for now_ms, times in fresh for at_ms in times],
        example=_example(redis, keys),
    )


def _example(redis: RedisClient, keys: list[bytes]) -> str:
    """Describe what one user must not see; mostly it is the same user as long as they have a cap."""
    if not keys:
        return ""
    key = min(keys)
    members = sorted(member.decode() for member in redis.smembers(key))
    user = key.decode().removeprefix("cap:{").removesuffix("}")
    return f"user {user} must not see {', '.join(members[:4])}" if members else ""


def remove_caps(url: str) -> None:
    """Remove what the demo has left in a Redis that is not its own."""
    with connect(url) as redis:
        for key in redis.scan_iter(match=_OUR_KEYS, count=1000):
            redis.delete(key)


@contextmanager
def through_kafka(servers: str, rate: int) -> Iterator[Source]:
    """Send made-up views to a new topic, from a thread, and yield a source that reads the topic. It is
    deleted in the end."""
    from millpond.common.serialization import ByteArraySchema
    from millpond.datastream.connectors.kafka import KafkaSource
    from millpond.datastream.connectors.kafka.client import client_module, make_client

    topic = f"millpond-demo-{time.time_ns() // 1_000_000}"
    admin = make_client("admin.AdminClient", servers, {})
    try:
        admin.create_topics([client_module(".admin").NewTopic(topic, 2, 1)])[topic].result(60)
    except client_module().KafkaException as problem:
        raise JobExecutionError(f"Kafka at {servers} does not answer: {problem}.") from None
    is_over = threading.Event()

    def send() -> None:
        producer = make_client("Producer", servers, {"linger.ms": "5"})
        begin_s, sent = time.time(), 0
        while not is_over.wait(0.01):
            for number in range(sent, int((time.time() - begin_s) * rate)):
                producer.produce(topic, made_up_view(number, time.time_ns() // 1_000_000))
                sent = number + 1
            producer.poll(0)
        producer.purge()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
    try:
        yield source.set_value_only_deserializer(ByteArraySchema()).build()
    finally:
        is_over.set()
        sender.join()
        admin.delete_topics([topic])[topic].result(60)
