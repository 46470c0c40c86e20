"""`millpond capping ...`: frequency capping as a product."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from millpond.apps.frequency_capping import CappingJob, build, default_config, load_config
from millpond.apps.frequency_capping.windows import WindowError, parse_duration
from millpond.common import Configuration, Duration, RestartStrategies
from millpond.common.job_client import JobClient
from millpond.common.serialization import ByteArraySchema
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.connectors.base import Source
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millpond.errors import ProgramError

_JOB_NAME = "frequency capping"
_DEAD_LETTERS = "dead-letters"
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
        "--redis", required=True, metavar="URL", help="such as redis://localhost:6379/0"
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


def run_capping(parsed: argparse.Namespace) -> int:
    return {"run": _run}[parsed.action](parsed)


def _run(parsed: argparse.Namespace) -> int:
    config = load_config(parsed.rules) if parsed.rules else default_config()
    try:
        out_of_orderness_ms = parse_duration(parsed.out_of_orderness)
    except WindowError as problem:
        raise ProgramError(f"--out-of-orderness: {problem}.") from None
    environment = StreamExecutionEnvironment.get_execution_environment(_configuration(parsed))
    restarts = 3 if parsed.until_end else _FOR_EVER
    environment.get_config().set_restart_strategy(
        RestartStrategies.fixed_delay_restart(restarts, _RESTART_PAUSE_MS)
    )
    dead_letters = parsed.dead_letters or str(Path(parsed.checkpoint) / _DEAD_LETTERS)
    job = CappingJob(
        _source(parsed.input, parsed.begin),
        config,
        parsed.rules,
        parsed.redis,
        dead_letters,
        out_of_orderness_ms,
        parsed.until_end,
        _kafka_source("--rules-topic", parsed.rules_topic, "earliest")
        if parsed.rules_topic
        else None,
    )
    build(environment, job)
    client = environment.execute_async(_JOB_NAME)
    try:
        _watch(client)
    except KeyboardInterrupt:
        print("Stopping; the job goes on from here when it is started again.", file=sys.stderr)
        client.cancel().result()
        return 130
    client.get_job_execution_result().result()
    _report(client, dead_letters)
    return 0


def _configuration(parsed: argparse.Namespace) -> Configuration:
    settings: dict[str, Any] = {
        "execution.checkpointing.dir": parsed.checkpoint,
        "millpond.input.stop-at-end": parsed.until_end,
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


def _source(place: str, begin: str) -> Source:
    if place.startswith("kafka://"):
        return _kafka_source("--input", place, begin)
    if not Path(place).exists():
        raise ProgramError(f"--input {place}: there is no such folder or file.")
    lines = FileSource.for_record_stream_format(StreamFormat.binary_line_format(), place)
    return lines.monitor_continuously(Duration.of_millis(1000)).build()


def _kafka_source(option: str, place: str, begin: str) -> Source:
    servers, _, topic = place.removeprefix("kafka://").partition("/")
    if not servers or not topic or "/" in topic:
        raise ProgramError(f"{option} {place}: it must be kafka://HOST:PORT/TOPIC.")
    if begin in ("earliest", "latest"):
        start = getattr(KafkaOffsetsInitializer, begin)()
    elif begin.isdigit():
        start = KafkaOffsetsInitializer.timestamp(int(begin))
    else:
        raise ProgramError(f"--begin must be earliest, latest, or a time in ms, not '{begin}'.")
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_starting_offsets(start)
        .set_value_only_deserializer(ByteArraySchema())
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
    if counts["bad"] or counts["late"]:
        print(f"Bad and late records are in {dead_letters}.")
