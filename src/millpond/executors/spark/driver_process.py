"""Spark's driver process, the JVM behind PySpark: tells whether it has died, and makes PySpark forget it.

PySpark never looks: it keeps a dead JVM for the rest of the Python process, and every call fails. What
PySpark 4.3 keeps of a JVM in its classes:

    SparkContext._gateway, ._jvm                            the connection, and its process (`gateway.proc`)
    SparkContext._active_spark_context                      the context, with a server for accumulators
    SparkSession._instantiatedSession, ._activeSession      the session that the builder returns
    SQLContext._instantiatedContext

A call that waits for the JVM when it dies ends with an error, since the kernel closes the JVM's sockets: with
a Py4JError, or one of the operating system. Neither says what has happened; `DriverProcess.how_it_died` does.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ENDS_WITHIN_S = 30.0
_TEMP_DIR = re.compile(r"spark-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class DriverProcess:
    """The JVM that a Spark context of this process lives in. `context` is None if it has none (any more)."""

    gateway: Any
    context: Any

    @staticmethod
    def current() -> DriverProcess | None:
        """That of PySpark's running or next context; None if there is none yet."""
        from pyspark import SparkContext

        gateway, context = SparkContext._gateway, SparkContext._active_spark_context
        return None if gateway is None else DriverProcess(gateway, context)

    @staticmethod
    def of(session: Any) -> DriverProcess:
        return DriverProcess(session.sparkContext._gateway, session.sparkContext)

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        found: subprocess.Popen[bytes] | None = vars(self.gateway).get(
            "proc"
        )  # getattr would ask the JVM
        return found

    @property
    def was_started_here(self) -> bool:
        """False if spark-submit has started it, with this program below it."""
        return self._process is not None

    def how_it_died(self) -> str | None:
        """What happened to it, as the beginning of a sentence; None if it lives."""
        process, context = self._process, self.context
        if process is not None and process.poll() is not None:
            return self._name() + _how_it_ended(process.returncode)
        try:
            self.gateway.jvm.java.lang.System.currentTimeMillis()
            # A JVM that was asked to end stops its context first.
            stopped = context is not None and context._jsc.sc().isStopped()
        except Exception:  # refused, reset, or no answer: py4j has a class of its own for each
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # it is on its way out
                    return self._name() + _how_it_ended(process.wait(_ENDS_WITHIN_S))
            return self._name() + "does not answer any more"
        return self._name() + "has stopped its Spark context" if stopped else None

    def forget(self) -> None:
        """End it, if it is not dead yet and was started here, and make PySpark start from nothing."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession, SQLContext

        process = self._process
        if process is not None:
            process.kill()  # nothing if it has ended
            process.wait()
        if self.context is not None:
            self.context._jsc = None  # else it would ask the JVM to stop, and warn that it does not
            self.context.stop()
            _remove_temp_dir(self.context)
        with contextlib.suppress(Exception):  # there is nobody to say goodbye to
            self.gateway.shutdown()
        if process is not None and process.stdin is not None:
            process.stdin.close()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None

    def _name(self) -> str:
        process = self._process
        own = "" if process is None else f", process {process.pid}"
        return f"Spark's driver process (the JVM{own}) "


def say_nothing_when_it_dies(context: Any) -> None:
    """Keep back the tracebacks of PySpark and py4j that come with its death; Millpond says it in one line."""
    server = context._accumulatorServer
    complain = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            complain(request, client_address)

    server.handle_error = handle_error
    logging.getLogger().addFilter(_is_not_of_py4j)  # adding it again changes nothing


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j uses the root logger for what a call meets when the other side is gone."""
    return "py4j" not in Path(record.pathname).parts


def _how_it_ended(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def _remove_temp_dir(context: Any) -> None:
    """The JVM removes it, with its copies of state, when it ends; one that was killed cannot."""
    folder = Path(getattr(context, "_temp_dir", "")).parent
    if _TEMP_DIR.fullmatch(folder.name):  # else it belongs to the cluster manager
        shutil.rmtree(folder, ignore_errors=True)
