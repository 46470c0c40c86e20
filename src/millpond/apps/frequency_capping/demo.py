"""Shows frequency capping at work: views are made up, Redis is embedded, and a terminal shows what happens.

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.apps.frequency_capping.capping import CAP, Change
from millpond.apps.frequency_capping.config import CappingConfig
from millpond.apps.frequency_capping.embedded import embedded_redis
from millpond.apps.frequency_capping.pipeline import CappingJob, build
from millpond.apps.frequency_capping.records import RecordFormat
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
from millpond.datastream.connectors.redis import connect
from millpond.datastream.functions import RuntimeContext, SinkContext

RULES = [
    {"name": "3 of an ad in 10 s", "level": "ad", "limit": 3, "window": "10s"},
    {"name": "8 of a campaign in 20 s", "level": "campaign", "limit": 8, "window": "20s"},
]
_USERS, _ADS, _CAMPAIGNS = 4000, 12, 3
_BARS = " ▁▂▃▄▅▆▇█"
_WARM_UP_S = 5.0  # views pile up while Spark starts
_told: list[Any] = []  # (driver's time in ms, its event times), from the probe in this process


def made_up_view(number: int, time_ms: int) -> bytes:
    """The same for the same number. A few users see far more than others; one record in 500 is broken."""
    chance = random.Random(number)
    if chance.random() < 0.002:
        return b'{"user_no": broken'
    user = int(_USERS * chance.random() ** 3)
    ad = chance.randrange(_ADS)
    view = {"user_no": user, "da_id": f"ad-{ad}", "campaign_id": f"c{ad % _CAMPAIGNS}"}
    return json.dumps({**view, "log_time": time_ms, "impression_id": number}).encode()


class MadeUpViews(Source):
    """So many a second, by the clock. A batch reads (first number, time of it, how many)."""

    bounded = False
    endless = True

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _Clock(self._rate, parallelism)

    def read(self, arguments: tuple[int, int, int, int]) -> Iterator[tuple[Any, int | None]]:
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
    """Is told, right after Redis was written, of what times the caps were."""

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Times()

    def commit(self, epoch: Epoch, messages: list[list[int]]) -> None:
        _told.append((time.time_ns() // 1_000_000, [at for own in messages for at in own]))


class _Times(SinkWriter):
    def __init__(self) -> None:
        self._times: list[int] = []

    def write(self, value: Change, context: SinkContext) -> None:
        if value[2] == CAP:
            self._times.append(value[3])

    def prepare(self) -> list[int]:
        return self._times


@dataclass
class Seen:
    """What the demo has seen: a row for every look."""

    rows: list[dict[str, float]] = field(default_factory=list)
    latencies_ms: list[int] = field(default_factory=list)

    def look(self, client: JobClient, redis: Any, begin_s: float) -> dict[str, float]:
        metrics = client.get_accumulators().result()
        fresh, _told[:] = list(_told), []
        new = [now - at for now, times in fresh for at in times]
        if time.monotonic() - begin_s > _WARM_UP_S:
            self.latencies_ms += new
        row = {
            "s": time.monotonic() - begin_s,
            "records": metrics.get("read records.records", 0),
            "bad": metrics.get("read records.bad", 0),
            "caps": metrics.get("cap users.caps", 0),
            "uncaps": metrics.get("cap users.uncaps", 0),
            "watermark": metrics.get("cap users.currentInputWatermark", 0),
            "users": redis.dbsize(),
        }
        before = self.rows[-1]["latency_ms"] if self.rows else 0
        row["latency_ms"] = sorted(new)[len(new) // 2] if new else before
        row["capped"] = row["caps"] - row["uncaps"]
        self.rows.append(row)
        return row

    def rate(self) -> float:
        """Records a second, in the last seconds."""
        last = self.rows[-1]
        before = next(own for own in self.rows if last["s"] - own["s"] <= 5)
        passed_s = last["s"] - before["s"]
        return (last["records"] - before["records"]) / passed_s if passed_s > 0 else 0.0

    def percentile(self, share: float) -> int:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def run_demo(
    seconds: float, rate: int, kafka: str | None, redis_url: str | None, picture: str
) -> int:
    folder = Path(tempfile.mkdtemp(prefix="millpond-demo-"))
    try:
        if redis_url is not None:
            return _run(seconds, rate, kafka, redis_url, picture, folder)
        with embedded_redis(folder) as url:
            return _run(seconds, rate, kafka, url, picture, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(seconds: float, rate: int, kafka: str | None, url: str, picture: str, folder: Path) -> int:
    print(f"{rate:,} views/s of {_ADS} ads by {_USERS:,} users. Rules:")
    for rule in RULES:
        print(f"  {rule['name']}")
    print("\nStarting Spark ...", flush=True)
    source: Source = MadeUpViews(rate) if kafka is None else _through_kafka(kafka, rate, seconds)
    configuration = {"execution.checkpointing.dir": str(folder / "state"), "parallelism.default": 2}
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
    redis, seen = connect(url), Seen()
    _watch(client, redis, seen, seconds)
    client.cancel().result()
    _report(seen, picture)
    return 0


def _watch(client: JobClient, redis: Any, seen: Seen, seconds: float) -> None:
    while not client.get_accumulators().result().get("read records.records"):
        if client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()
        time.sleep(0.05)
    begin_s, shown = time.monotonic(), 0
    is_terminal = sys.stdout.isatty()
    while time.monotonic() - begin_s < seconds:
        if client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()
        row = seen.look(client, redis, begin_s)
        if is_terminal or row["s"] >= shown:
            print(_view(seen, row, is_terminal), end="", flush=True)
            shown += 5
        time.sleep(0.5)
    if is_terminal:
        print()


def _view(seen: Seen, row: dict[str, float], is_terminal: bool) -> str:
    behind_s = max(0.0, time.time() - row["watermark"] / 1000) if row["watermark"] > 0 else 0.0
    line = (
        f"{row['s']:5.1f} s  {seen.rate():7,.0f} views/s  {row['capped']:6,.0f} capped for "
        f"{row['users']:5,.0f} users  {row['caps']:7,.0f} caps  {row['uncaps']:7,.0f} releases  "
        f"{row['bad']:4,.0f} bad  event time {behind_s:4.1f} s behind"
    )
    if not is_terminal:
        return line + "\n"
    plot = _bars([own["capped"] for own in seen.rows], 60)
    lines = [
        line,
        f"capped   {plot}",
        f"latency  {_bars([r['latency_ms'] for r in seen.rows], 60)}",
    ]
    back = f"\x1b[{len(lines)}F" if len(seen.rows) > 1 else "\n"
    return back + "".join(f"\x1b[2K{own}\n" for own in lines)


def _bars(values: list[float], width: int) -> str:
    values = values[-width:]
    most = max(values, default=0) or 1
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)


def _report(seen: Seen, picture: str) -> None:
    last = seen.rows[-1]
    print(
        f"\n{last['records']:,.0f} views, {last['bad']:,.0f} of them broken (put aside, and counted). "
        f"{last['caps']:,.0f} times something was capped, {last['uncaps']:,.0f} times released; at most "
        f"{max(row['capped'] for row in seen.rows):,.0f} at once."
    )
    if seen.latencies_ms:
        print(
            f"From a view to its cap in Redis, after {_WARM_UP_S:g} s: {seen.percentile(0.5):,} ms (median), "
            f"{seen.percentile(0.99):,} ms (99 %)."
        )
    if _draw(seen, picture):
        print(f"A picture is in {picture}.")


def _draw(seen: Seen, path: str) -> bool:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(9, 6), sharex=True, layout="constrained"
    )
    at = [row["s"] for row in seen.rows]
    above.plot(at, [row["capped"] for row in seen.rows], color="#c44", label="capped now")
    above.plot(at, [row["caps"] for row in seen.rows], color="#999", lw=1, label="caps so far")
    above.plot(
        at, [row["uncaps"] for row in seen.rows], color="#4a4", lw=1, label="releases so far"
    )
    above.set_title("Frequency capping")
    above.legend()
    below.plot(at, [row["latency_ms"] for row in seen.rows], color="#36c")
    below.set_ylabel("view to Redis, ms")
    below.set_xlabel("s")
    below.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)
    return True


def _through_kafka(servers: str, rate: int, seconds: float) -> Source:
    """Makes the views in a thread, sends them to a topic of their own, and reads that."""
    from millpond.common.serialization import ByteArraySchema
    from millpond.datastream.connectors.kafka import KafkaSource
    from millpond.datastream.connectors.kafka_client import client_module, make_client

    topic = f"millpond-demo-{time.time_ns() // 1_000_000}"
    admin, new_topic = (
        make_client("admin.AdminClient", servers, {}),
        client_module(".admin").NewTopic,
    )
    admin.create_topics([new_topic(topic, 2, 1)])[topic].result(60)

    def send() -> None:
        producer, begin_s, sent = (
            make_client("Producer", servers, {"linger.ms": "5"}),
            time.time(),
            0,
        )
        while time.time() < begin_s + seconds + 60:
            for number in range(sent, int((time.time() - begin_s) * rate)):
                producer.produce(topic, made_up_view(number, time.time_ns() // 1_000_000))
                sent = number + 1
            producer.poll(0.01)

    threading.Thread(target=send, daemon=True).start()
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
    return source.set_value_only_deserializer(ByteArraySchema()).build()
