"""Spark's own daemons of a standalone cluster: their command lines and their settings."""

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
    """Return the command that runs a master in the foreground, with its page at `page_port`."""
    addresses = ["--host", host, "--port", str(port), "--webui-port", str(page_port)]
    return [_spark_class(), f"{_DEPLOY}.master.Master", *addresses]


def worker_command(master: str, host: str, cores: int, memory: str, folder: Path) -> list[str]:
    """Return the command that runs a worker of a master in the foreground. `cores` and `memory` are what it
    may give to executors; `folder` is for their files."""
    size = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder)]
    return [
        *(_spark_class(), f"{_DEPLOY}.worker.Worker"),
        *("--host", host, "--webui-port", "0", *size, master),
    ]


def daemon_environment(host: str, settings: Path, scratch: Path) -> dict[str, str]:
    """Return the environment variables of a daemon. Raises SetupError, which says how to get Java, if there
    is none."""
    find_java()
    return {
        **os.environ,
        "SPARK_LOCAL_IP": host,
        "SPARK_CONF_DIR": str(settings),
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": os.environ.get("SPARK_DAEMON_MEMORY", "512m"),
        # Daemons do little: for them, starting fast matters more than running fast.
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get(
            "SPARK_DAEMON_JAVA_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        ),
        # Workers remove, after a while, what the executors of ended jobs have left behind.
        "SPARK_WORKER_OPTS": os.environ.get("SPARK_WORKER_OPTS", "")
        + " -Dspark.worker.cleanup.enabled=true",
    }


def write_settings(folder: Path, host: str) -> None:
    """Write the settings of all daemons and drivers of a cluster: those in $SPARK_CONF_DIR, and those that
    keep others out. Without the secret, everybody who can reach the master could have it run programs as this
    user. An existing secret is kept, because jobs may know it."""
    secret = folder / "secret"
    if not secret.exists():
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    master_page.make_key(folder / PAGE_KEY_FILE)
    given = os.environ.get("SPARK_CONF_DIR")
    known = ""
    if given and Path(given).is_dir() and Path(given) != folder:
        for path in Path(given).iterdir():
            if path.is_file():
                shutil.copy(path, folder / path.name)
        defaults = Path(given) / "spark-defaults.conf"
        known = defaults.read_text() if defaults.exists() else ""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret.read_text(),
        # The master's submission server asks for no secret: it would run everybody's programs.
        "spark.master.rest.enabled": "false",
        **master_page.filter_settings((folder / PAGE_KEY_FILE).read_text()),
        **socket_settings(),
    }
    if host in _LOOPBACK:
        # Otherwise a driver would listen on the machine's address in the network.
        settings |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    aside = folder / ".spark-defaults.conf"
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{known}\n")
        file.writelines(f"{key} {value}\n" for key, value in settings.items())
    os.replace(aside, folder / "spark-defaults.conf")


def _spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")
