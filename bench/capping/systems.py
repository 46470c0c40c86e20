"""The systems of the side-by-side benchmark: how each is installed and how its job is run.

Every job runs twice in its process: once over a small input to warm up, then timed over the whole one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyspark

PEERS = Path(__file__).parent / "peers"
FLINK, BYTEWAX = "apache-flink==2.3.0", "bytewax==0.21.1"
Command = Callable[["Workshop", list[list[str]], Path], list[str]]


class Workshop:
    """A folder with the peers' own environments; made once, on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def python(self, name: str, requirement: str) -> Path:
        """The interpreter of a virtual environment with one package in it."""
        home = self.folder / name
        if not (home / "ready").exists():
            print(f"Installing {requirement} into {home} ...", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            subprocess.run([str(home / "bin" / "pip"), "install", "-q", requirement], check=True)
            (home / "ready").touch()
        return home / "bin" / "python"

    def flink_jars(self) -> str:
        python = self.python("flink", FLINK)
        (package,) = python.parent.parent.glob("lib/python*/site-packages/pyflink")
        return str(package / "lib" / "*")

    def jars(self, *coordinates: str) -> str:
        """A class path: organisation:name:version each, without what they need in turn."""
        folder = self.folder / "jars"
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        for own in coordinates:
            organisation, name, version = own.split(":")
            if not (folder / f"{name}-{version}.jar").exists():
                command = ["java", "-jar", str(ivy), "-cache", str(self.folder / "ivy")]
                command += ["-dependency", organisation, name, version, "-confs", "default"]
                command += ["-notransitive", "-types", "jar", "bundle"]
                command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return str(folder / "*")

    def flink_classes(self, source: Path, more_jars: str = "") -> Path:
        """A folder with the compiled job."""
        classes = self.folder / "flink-classes"
        compiled = classes / f"{source.stem}.class"
        if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
            classes.mkdir(parents=True, exist_ok=True)
            path = f"{self.flink_jars()}:{more_jars}"
            command = ["javac", "-nowarn", "-cp", path, "-d", str(classes)]
            subprocess.run([*command, str(source)], check=True)
        return classes


@dataclass
class System:
    """Slow systems get a share of the views (and of the users), and run in one round only. `checkout` is the
    folder with Millpond if it is not this one."""

    key: str
    name: str
    command: Command
    share: float = 1.0
    once: bool = False
    checkout: Path | None = None


def beside(systems: list[Any], checkout: Path | None) -> list[Any]:
    """Return the systems and, after each that is Millpond, the same in another checkout, if there is one."""
    if checkout is None:
        return systems
    if not (checkout / "src" / "millpond").is_dir():
        raise SystemExit(f"{checkout} is not a checkout of Millpond: it has no src/millpond.")
    both = []
    for system in systems:
        both.append(system)
        if system.key.startswith("millpond"):
            name = f"{system.name}, as in {checkout.name}"
            both.append(replace(system, key=f"{system.key}-before", name=name, checkout=checkout))
    return both


def flink_java(source: Path, first_argument: str, checkpoint_interval: str = "3s") -> Command:
    """A job whose first argument is its own: the backend, the kind of window."""

    def command(workshop: Workshop, runs: list[list[str]], folder: Path) -> list[str]:
        outputs = [f"{folder}/output-{i}={','.join(files)}" for i, files in enumerate(runs)]
        path = f"{workshop.flink_classes(source)}:{workshop.flink_jars()}"
        opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("util", "lang")]
        return [
            "java", "-Xmx4g", *opens, "-cp", path, source.stem, first_argument,
            checkpoint_interval, f"{folder}/state", "2", *outputs,
        ]  # fmt: skip

    return command


def _python_peer(script: str, name: str, requirement: str) -> Command:
    def command(workshop: Workshop, runs: list[list[str]], folder: Path) -> list[str]:
        python = workshop.python(name, requirement)
        return [str(python), str(PEERS / script), json.dumps({"runs": runs, "folder": str(folder)})]

    return command


def plain_spark(workshop: Workshop, runs: list[list[str]], folder: Path) -> list[str]:
    settings = json.dumps({"runs": runs, "folder": str(folder)})
    return [sys.executable, str(PEERS / "spark_job.py"), settings]


def millpond(module: str = "capping.millpond_job", **changes: Any) -> Command:
    """Millpond with the settings of this benchmark: two cores, large batches."""

    def command(workshop: Workshop, runs: list[list[str]], folder: Path) -> list[str]:
        configuration = {
            "millpond.master": "local[2]",
            "parallelism.default": 2,
            "millpond.checkpoint.retain-on-finish": True,
            "millpond.order-across-keys": False,
            **changes,
        }
        settings = {"runs": runs, "folder": str(folder), "configuration": configuration}
        return [sys.executable, "-m", f"bench.{module}", json.dumps(settings)]

    return command


_CAPPING = PEERS / "CappingJob.java"
SYSTEMS = [
    System("millpond", "Millpond", millpond()),
    System("flink-hashmap", "Flink 2.3 in Java, hashmap", flink_java(_CAPPING, "hashmap")),
    System("millpond-columns", "Millpond, on columns", millpond("capping.columns_job")),
    System("flink-hashmap-10s", "Flink 2.3 in Java, hashmap, checkpoints every 10 s",
           flink_java(_CAPPING, "hashmap", "10s")),
    System("millpond-order", "Millpond, order across keys",
           millpond(**{"millpond.order-across-keys": True})),
    System("millpond-rocksdb", "Millpond, RocksDB", millpond(**{"state.backend.type": "rocksdb"})),
    System("flink-rocksdb", "Flink 2.3 in Java, RocksDB", flink_java(_CAPPING, "rocksdb")),
    System("bytewax", "Bytewax 0.21, recovery on, no timers",
           _python_peer("bytewax_job.py", "bytewax", BYTEWAX), share=0.5, once=True),
    System("transform-with-state", "PySpark 4.3, plain transformWithState", plain_spark,
           share=0.02, once=True),
    System("pyflink", "PyFlink 2.3, process mode",
           _python_peer("pyflink_job.py", "flink", FLINK), share=0.005, once=True),
]  # fmt: skip
