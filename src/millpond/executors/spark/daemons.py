"""Spark's own daemons of a standalone cluster: how they are started, and with which settings."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path

from millpond.executors.spark import master_page
from millpond.executors.spark.java import find_java
from millpond.executors.spark.local_sockets import socket_settings

PAGE_KEY_FILE = "page-key"  # beside the settings
_DEPLOY = "org.apache.spark.deploy"
_LOOPBACK = ("127.0.0.1", "localhost")


def master_command(host: str, port: int, page_port: int) -> list[str]:
    place = ["--host", host, "--port", str(port), "--webui-port", str(page_port)]
    return [_spark_class(), f"{_DEPLOY}.master.Master", *place]


def worker_command(master: str, host: str, cores: int, memory: str, folder: Path) -> list[str]:
    size = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder)]
    return [
        *(_spark_class(), f"{_DEPLOY}.worker.Worker"),
        *("--host", host, "--webui-port", "0", *size, master),
    ]


def daemon_environment(host: str, settings: Path, scratch: Path) -> dict[str, str]:
    """Of a daemon. Raises, saying how to get one, if there is no Java."""
    find_java()
    return {
        **os.environ,
        "SPARK_LOCAL_IP": host,
        "SPARK_CONF_DIR": str(settings),
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": os.environ.get("SPARK_DAEMON_MEMORY", "512m"),
        # They do little: to start fast is worth more than to run fast.
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get(
            "SPARK_DAEMON_JAVA_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        ),
        # What executors of jobs that have ended leave behind goes after a while.
        "SPARK_WORKER_OPTS": os.environ.get("SPARK_WORKER_OPTS", "")
        + " -Dspark.worker.cleanup.enabled=true",
    }


def write_settings(folder: Path, host: str) -> None:
    """Settings of all daemons and drivers of a cluster: those that $SPARK_CONF_DIR has, and what keeps others
    out. Without the secret everybody who can reach the master could have programs run as this user. A secret
    that is there stays: jobs may have it."""
    secret = folder / "secret"
    if not secret.exists():
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    master_page.make_key(folder / PAGE_KEY_FILE)
    given = os.environ.get("SPARK_CONF_DIR")
    known = ""
    if given and Path(given).is_dir() and Path(given) != folder:
        for own in Path(given).iterdir():
            if own.is_file():
                shutil.copy(own, folder / own.name)
        defaults = Path(given) / "spark-defaults.conf"
        known = defaults.read_text() if defaults.exists() else ""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret.read_text(),
        # Its submission server knows no secret: it would run the programs of everybody who reaches it.
        "spark.master.rest.enabled": "false",
        **master_page.filter_settings((folder / PAGE_KEY_FILE).read_text()),
        **socket_settings(),
    }
    if host in _LOOPBACK:
        # A driver would listen on the machine's address in the network.
        settings |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    aside = folder / ".spark-defaults.conf"
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{known}\n")
        file.writelines(f"{key} {value}\n" for key, value in settings.items())
    os.replace(aside, folder / "spark-defaults.conf")


def _spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")
