"""Spark's own daemons of a standalone cluster: how they are started, and what they tell about themselves."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from millpond.executors.spark.java import find_java

_DEPLOY = "org.apache.spark.deploy"
_ANSWER_S = 2.0


@dataclass(frozen=True)
class MasterState:
    """What a master's page says."""

    url: str
    workers: int  # that are alive


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


def write_settings(folder: Path) -> None:
    """Settings of all daemons and drivers of a cluster: those that $SPARK_CONF_DIR has, and a secret. Without
    it everybody who can reach the master could have programs run as this user. A secret that is there stays:
    jobs may have it."""
    secret = folder / "secret"
    if not secret.exists():
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    given = os.environ.get("SPARK_CONF_DIR")
    known = ""
    if given and Path(given).is_dir() and Path(given) != folder:
        for own in Path(given).iterdir():
            if own.is_file():
                shutil.copy(own, folder / own.name)
        defaults = Path(given) / "spark-defaults.conf"
        known = defaults.read_text() if defaults.exists() else ""
    aside = folder / ".spark-defaults.conf"
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(
            f"{known}\nspark.authenticate true\nspark.authenticate.secret {secret.read_text()}\n"
        )
    os.replace(aside, folder / "spark-defaults.conf")


def master_state(page: str) -> MasterState | None:
    """None if it does not answer yet, or is not ready."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{page}/json/", timeout=_ANSWER_S) as answer:
            content = json.load(answer)
        if content["status"] != "ALIVE":
            return None
        alive = [worker for worker in content["workers"] if worker["state"] == "ALIVE"]
        return MasterState(str(content["url"]), len(alive))
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError):
        return None


def _spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")
