"""Spark's driver process, the JVM behind PySpark: finds out whether it has died, and makes PySpark forget it.

PySpark never checks: it keeps a dead JVM for the rest of the Python process, and every call fails. These are
the attributes in which PySpark 4.3 keeps a JVM:

    SparkContext._gateway, ._jvm                            the connection, and its process (`gateway.proc`)
    SparkContext._active_spark_context                      the context, with a server for accumulators
    SparkSession._instantiatedSession, ._activeSession      the session that the builder returns
    SQLContext._instantiatedContext

A call that waits for the JVM when the JVM dies ends with an error, because the kernel closes the JVM's
sockets: a Py4JError, or an error of the operating system. Neither says what has happened;
`DriverProcess.how_it_died` does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

_ENDS_WITHIN_S = 30.0
_TEMP_DIR = re.compile(r"spark-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class DriverProcess:
    """The JVM in which a Spark context of this process lives. `context` is None if it has none, or no
    longer."""

    gateway: JavaGateway
    context: SparkContext | None

    @staticmethod
    def current() -> DriverProcess | None:
        """Return the JVM of PySpark's running or next context; None if there is none yet."""
        from pyspark import SparkContext

        gateway, context = SparkContext._gateway, SparkContext._active_spark_context
        return None if gateway is None else DriverProcess(gateway, context)

    @staticmethod
    def of(session: SparkSession) -> DriverProcess:
        """Return the JVM of a session."""
        return DriverProcess(session.sparkContext._gateway, session.sparkContext)

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        # Not with getattr, which would ask the JVM.
        found: subprocess.Popen[bytes] | None = vars(self.gateway).get("proc")
        return found

    @property
    def was_started_here(self) -> bool:
        """Whether this process has started it. Otherwise spark-submit has, and has started this program,
        too."""
        return self._process is not None

    def how_it_died(self) -> str | None:
        """Return what happened to it, as the beginning of a sentence; None if it is alive."""
        process, context = self._process, self.context
        if process is not None and process.poll() is not None:
            return self._name() + _how_it_ended(process.returncode)
        try:
            self.gateway.jvm.java.lang.System.currentTimeMillis()
            # A JVM that was asked to end stops its context first.
            stopped = context is not None and context._jsc.sc().isStopped()
        except Exception:  # refused, reset, or no answer: py4j has a class for each of them
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # it is on its way out
                    return self._name() + _how_it_ended(process.wait(_ENDS_WITHIN_S))
            return self._name() + "does not answer any more"
        return self._name() + "has stopped its Spark context" if stopped else None

    def forget(self) -> None:
        """End it, if it is not dead yet and was started here, and make PySpark start afresh."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession, SQLContext

        process = self._process
        if process is not None:
            process.kill()  # does nothing if it has ended
            process.wait()
        if self.context is not None:
            # Otherwise the context would ask the JVM to stop, and warn that it does not.
            self.context._jsc = None
            self.context.stop()
            _remove_temp_dir(self.context)
        with contextlib.suppress(Exception):  # the other end is gone
            self.gateway.shutdown()
        if process is not None and process.stdin is not None:
            process.stdin.close()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None

    def _name(self) -> str:
        process = self._process
        process_text = "" if process is None else f", process {process.pid}"
        return f"Spark's driver process (the JVM{process_text}) "


class DriverWatch:
    """A context manager that calls `on_death` if the JVM dies, because nobody else would notice while the job
    waits for work. A JVM that spark-submit has started ends this process, too, and is not watched."""

    def __init__(self, driver: DriverProcess, on_death: Callable[[], None]) -> None:
        process = driver._process
        self._jvm = -1 if process is None else _pidfd(process.pid)
        self._on_death = on_death
        self._over, self._end = os.pipe()

    def __enter__(self) -> None:
        if self._jvm >= 0:
            self._thread = threading.Thread(target=self._watch, name="watch-jvm", daemon=True)
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
        if self._jvm >= 0:
            self._thread.join()
            os.close(self._jvm)
        os.close(self._over)

    def _watch(self) -> None:
        ready, _, _ = select.select([self._jvm, self._over], [], [])
        if self._jvm in ready:
            self._on_death()


def _pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a process ends; -1 if it has ended already."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def say_nothing_when_it_dies(context: SparkContext) -> None:
    """Suppress the tracebacks of PySpark and py4j that come with the JVM's death; Millpond reports it in one
    line."""
    server = context._accumulatorServer
    complain = server.handle_error

    def handle_error(request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            complain(request, client_address)

    server.handle_error = handle_error
    logging.getLogger().addFilter(_is_not_of_py4j)  # adding it again changes nothing


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a log record is not py4j's, which uses the root logger when the other end is gone."""
    return "py4j" not in Path(record.pathname).parts


def _how_it_ended(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def _remove_temp_dir(context: SparkContext) -> None:
    """Remove the temporary folder of a JVM, with its copies of state. A JVM that was killed could not do
    so."""
    folder = Path(getattr(context, "_temp_dir", "")).parent
    if _TEMP_DIR.fullmatch(folder.name):  # otherwise it belongs to the cluster manager
        shutil.rmtree(folder, ignore_errors=True)
