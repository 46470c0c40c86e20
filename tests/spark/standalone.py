"""A standalone Spark cluster for tests: a master and workers, from PySpark's own classes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(
    arguments: list[str], ready: str, folder: Path, temporary: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Spark daemon; yields when it has printed `ready`; ends it, by its id, afterwards."""
    environment = {
        **os.environ,
        **({} if temporary is None else {"TMPDIR": temporary}),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
    }
    process = subprocess.Popen(
        [str(SPARK_CLASS), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if ready in line:
                break
        else:
            raise RuntimeError("the daemon ended:\n" + "".join(seen[-20:]))
        # Whatever else it prints must not fill the pipe.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield process
    finally:
        process.terminate()
        process.wait(30)
        if process.stderr is not None:
            process.stderr.close()
        drain.wait(30)


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2, apart: bool = False) -> Iterator[str]:
    """The URL of a running cluster with one core per worker. `apart`: each worker has an address, a folder
    and a temporary folder of its own, as if it were another machine; so its slots serve its own executors
    only."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        stack.enter_context(daemon([*master, "--webui-port", "0"], "elected leader", folder))
        for number in range(workers):
            own, temporary, host = folder, None, "127.0.0.1"
            if apart:
                host = f"127.0.0.{number + 1}"
                own = folder / f"worker-{number}"
                # Not below `own`: the length of the paths of sockets is limited.
                temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="worker-"))
            worker = [f"{_DEPLOY}.worker.Worker", url, "--host", host, "--cores", "1"]
            worker += ["--memory", "1g", "--webui-port", "0"]
            stack.enter_context(daemon(worker, "Successfully registered", own, temporary))
        yield url
