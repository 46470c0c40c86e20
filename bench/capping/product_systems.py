"""How the product and its peers are run in the benchmark of the product: Kafka in, Redis out.

Every program runs its job over a small topic first, to warm up, and then over the whole one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.capping import product_data as data
from bench.capping.systems import FLINK, PEERS, Workshop

_CONNECTOR = "org.apache.flink:flink-connector-kafka:5.0.0-2.2"
_CLIENTS = "org.apache.kafka:kafka-clients:4.2.0"
_JEDIS = (
    "redis.clients:jedis:6.2.0",
    "org.apache.commons:commons-pool2:2.12.1",
    "com.google.code.gson:gson:2.13.1",
    "org.json:json:20250517",
)
_REDIS_FOR_PYTHON = "redis==5.3.1"  # as Beam wants it


@dataclass(frozen=True)
class Place:
    """`live`: go on and on, instead of stopping at the end of the topic."""

    servers: str
    redis_port: int
    topics: tuple[str, ...]
    rules: str
    folder: Path
    late_ms: int = data.JITTER_MS
    live: bool = False
    settings: tuple[str, ...] = ()  # of Millpond, KEY=VALUE each


Command = Callable[[Workshop, Place], list[str]]


@dataclass(frozen=True)
class System:
    """`share`: slow systems get a part of the views. `checkout` is the folder with Millpond if it is not this
    one."""

    key: str
    name: str
    command: Command
    share: float = 1.0
    checkout: Path | None = None


def millpond_arguments(place: Place, topic: str) -> list[str]:
    """Of `millpond capping run`."""
    rules = place.folder / f"{place.rules}.yaml"
    rules.write_text(yaml.safe_dump({"rules": data.RULES[place.rules]}))
    return [
        *("--input", f"kafka://{place.servers}/{topic}", "--rules", str(rules)),
        *("--redis", f"redis://127.0.0.1:{place.redis_port}/0"),
        *("--checkpoint", str(place.folder / f"state-{topic}")),
        *("--master", "local[2]", "--parallelism", "2"),
        *("--out-of-orderness", f"{place.late_ms}ms"),
        *(() if place.live else ("--until-end",)),
        *(part for setting in place.settings for part in ("-D", setting)),
    ]


def millpond(workshop: Workshop, place: Place) -> list[str]:
    if place.live:
        arguments = millpond_arguments(place, place.topics[0])
        return [sys.executable, "-m", "millpond", "capping", "run", *arguments]
    runs = [millpond_arguments(place, topic) for topic in place.topics]
    return [sys.executable, "-m", "bench.capping.product_job", json.dumps({"runs": runs})]


def flink_java(checkpoint_interval: str) -> Command:
    def command(workshop: Workshop, place: Place) -> list[str]:
        jars = workshop.jars(_CONNECTOR, _CLIENTS, *_JEDIS)
        classes = workshop.flink_classes(PEERS / "ProductJob.java", jars)
        opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("util", "lang")]
        return [
            *("java", "-Xmx4g", *opens, "-cp", f"{classes}:{workshop.flink_jars()}:{jars}"),
            *("ProductJob", place.servers, str(place.redis_port), data.PEER_RULES[place.rules]),
            *(checkpoint_interval, str(place.folder / "state"), "2", str(place.late_ms)),
            *("live" if place.live else "end", *place.topics),
        ]

    return command


def pyflink(workshop: Workshop, place: Place) -> list[str]:
    python = workshop.python("flink", FLINK)
    installed = python.parent.parent / "redis-ready"
    if not installed.exists():
        command = [str(python.parent / "pip"), "install", "-q", _REDIS_FOR_PYTHON]
        subprocess.run(command, check=True)
        installed.touch()
    folder = Path(workshop.jars(_CONNECTOR, _CLIENTS)).parent
    jars = [
        str(next(folder.glob(f"{name}-*.jar")))
        for name in ("flink-connector-kafka", "kafka-clients")
    ]
    settings = {
        "servers": place.servers,
        "redis_port": place.redis_port,
        "topics": place.topics,
        "jars": jars,
        "late_ms": place.late_ms,
        "limit": data.LIMIT,
        "window_ms": data.WINDOW_MS,
        "folder": str(place.folder),
    }
    return [str(python), str(PEERS / "pyflink_product_job.py"), json.dumps(settings)]


MILLPOND = System("millpond", "Millpond", millpond)
SYSTEMS = [
    MILLPOND,
    System("flink-3s", "Flink 2.3 in Java, hashmap, checkpoints every 3 s", flink_java("3s")),
    System("flink-10s", "Flink 2.3 in Java, hashmap, checkpoints every 10 s", flink_java("10s")),
]
PYFLINK = System("pyflink", "PyFlink 2.3, process mode, default rule", pyflink, share=0.01)
