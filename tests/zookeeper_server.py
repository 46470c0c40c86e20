"""A real ZooKeeper server for tests: PySpark's jars contain one."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.servers import free_port, wait_until

_JARS = Path(pyspark.__file__).parent / "jars"
TICK_MS = 200  # sessions may time out after 2 to 20 of them


class ZooKeeperServer:
    """On a free loopback port. What it has acknowledged is in `folder` and outlives a kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.hosts = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "dataDir": folder / "data",
            "clientPort": self._port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
        }
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / "zoo.cfg").write_text(text)

    def start(self) -> None:
        command = ["java", "-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", f"{_JARS}/*", "org.apache.zookeeper.server.ZooKeeperServerMain"]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._folder / "zoo.cfg")], stdout=log, stderr=log
            )
        wait_until(self._answers, "ZooKeeper does not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (
            self._folder / "zookeeper.log"
        ).read_text()
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as asked:
                asked.sendall(b"ruok")
                return asked.recv(4) == b"imok"
        except OSError:
            return False


@contextmanager
def zookeeper_server(folder: Path) -> Iterator[str]:
    """Its address, "127.0.0.1:port"."""
    server = ZooKeeperServer(folder)
    server.start()
    try:
        yield server.hosts
    finally:
        server.stop()
