"""Finds or starts Spark, with the settings that Millpond needs and without Spark's noise."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.errors import ProgramError, SetupError, SparkDriverError
from millpond.executors.spark import class_archive
from millpond.executors.spark.cluster_managers import manager_settings
from millpond.executors.spark.driver_process import DriverProcess, say_nothing_when_it_dies
from millpond.executors.spark.java import Java, find_java
from millpond.executors.spark.local_sockets import remove_socket_at_exit, socket_settings
from millpond.executors.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

MIN_SPARK = (4, 3, 0)
_SETTINGS = {
    # There is a job for every batch; nobody looks at old ones.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    # A partition waits for the machine that has its state: to read that elsewhere takes longer than most
    # batches. When a machine is lost, nobody waits (`placement.py`).
    "spark.locality.wait": "10s",
    "spark.locality.wait.process": "0",  # slots serve all executors of their machine
    # Partitions should not all be placed on the first executor that comes.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10s",
}
# The large stack is for Spark's error handling, which runs a regular expression over messages, recursively.
JAVA_OPTIONS = "-Xss4m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_NOISE = re.compile(
    r"Using incubator modules|log4j2?-defaults|"
    r"Setting default log level|To adjust logging level|Setting Spark log level|"
    r"resolves to a loopback address|SPARK_LOCAL_IP|NativeCodeLoader|^\s*$"
)
_QUIET_LOGGERS = (
    # These log in hundreds of lines what Millpond reports in one.
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.util.Utils",
)
_lock = threading.Lock()
_shipped: dict[str, set[str]] = {}  # application -> files that its workers have already


@dataclass(frozen=True)
class _Origin:
    """What `get_session` has started a context from, and the context."""

    configuration: Configuration
    cores: int | None
    context: SparkContext | None = None


_started: _Origin | None = None  # of the newest context that was started here
_lost: _Origin | None = None  # the same, if that context has died and there is no other one yet


def get_session(configuration: Configuration, cores: int | None = None) -> SparkSession:
    """Return the running Spark session, or start a new one. `cores` is how many cores of a cluster a new one
    may take; None means all.

    If Spark's driver process has died, the new session is made in the same way as the one before. Raises
    SparkDriverError if only the program, or spark-submit, could make another."""
    with _lock:
        check_spark_version()
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        driver = DriverProcess.current()
        death = None if driver is None else driver.how_it_died()
        if driver is not None and death is not None:
            _forget_dead(driver, death)
        # The active session belongs to a thread; the context to the process.
        running = SparkContext._active_spark_context is not None
        if running:
            return SparkSession.builder.getOrCreate()
        return _start_or_clean_up(_lost or _Origin(configuration, cores))


def _forget_dead(driver: DriverProcess, death: str) -> None:
    global _lost
    if not driver.was_started_here:
        raise SparkDriverError(
            f"{death}. spark-submit started it: run spark-submit again, and the job then "
            "goes on from its newest checkpoint.",
            can_be_replaced=False,
        )
    if driver.context is not None and (_started is None or driver.context is not _started.context):
        raise SparkDriverError(
            f"{death}. The program has made this Spark session itself: start the program again, and the "
            "job then goes on from its newest checkpoint.",
            can_be_replaced=False,
        )
    driver.forget()
    _lost = _started


def _start_or_clean_up(origin: _Origin) -> SparkSession:
    """Start a session. If that fails, end the JVM, which nobody needs, so that the next try starts afresh."""
    global _started, _lost
    try:
        session = _start_session(origin.configuration, origin.cores)
    except Exception as problem:
        driver = DriverProcess.current()
        death = None if driver is None else driver.how_it_died()
        if driver is not None and driver.was_started_here:
            driver.forget()
        if death is None:
            raise
        raise SparkDriverError(f"{death} while Spark was starting: {problem}") from None
    _started, _lost = replace(origin, context=session.sparkContext), None
    return session


def stop_session() -> None:
    """Stop Spark and its JVM, if they run, and wait until they are gone."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with its standard input
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None


def default_parallelism(configuration: Configuration) -> int:
    """Return Spark's default parallelism, the number of its cores. Starts Spark if it is not running. Raises
    ProgramError if that number changes while a job runs."""
    if options.DYNAMIC_ALLOCATION.read_choice(configuration, ("on", "off")) == "on":
        raise ProgramError(
            f"With {options.DYNAMIC_ALLOCATION.key}=on, the number of cores changes while a job runs, so it "
            f"cannot be the parallelism: set {options.PARALLELISM.key}."
        )
    return int(get_session(configuration).sparkContext.defaultParallelism)


def check_spark_version() -> None:
    """Raise SetupError if PySpark is not installed, or is too old."""
    try:
        import pyspark
    except ImportError:
        raise SetupError("PySpark is not installed: pip install 'pyspark>=4.3.0'") from None
    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:3])
    if found < MIN_SPARK:
        raise SetupError(
            f"Millpond needs PySpark 4.3.0 or newer; {pyspark.__version__} is installed. "
            "Run: pip install --upgrade 'pyspark>=4.3.0'"
        )


def _start_session(configuration: Configuration, cores: int | None) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    conf, master = _spark_conf(configuration, cores, submitted)
    is_local = master is not None and master.startswith("local")
    # Machines of a cluster may have Python in another place.
    named = conf.get("spark.pyspark.python", None)
    os.environ["PYSPARK_PYTHON"] = worker_python() if is_local else named or sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if submitted or SparkContext._gateway is not None:  # the JVM may have outlived its context
        context = SparkContext(conf=conf)
    else:
        context = SparkContext(conf=conf, gateway=_launch_gateway(conf))
    remove_socket_at_exit(context)
    _silence(context)
    if master is not None and not is_local:
        _ship_package(context)
    return SparkSession(context)


def _spark_conf(
    configuration: Configuration, cores: int | None, submitted: bool
) -> tuple[SparkConf, str | None]:
    """Return the settings of a new context, and its master. The master is None if only spark-submit knows it.

    Settings of the user come first: those of the program, then those that Spark has from elsewhere."""
    from pyspark import SparkConf

    conf = SparkConf()
    java = None if submitted else find_java()
    master: str | None = options.MASTER.read(configuration) or conf.get("spark.master", None)
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        conf.setMaster(_with_retries(master))
    if conf.get("spark.app.name", None) is None:
        conf.setAppName("millpond")
    for key, value in _SETTINGS.items():
        conf.setIfMissing(key, value)
    if master is not None and master.startswith("local"):
        _set_up_local(conf, master, java)
    else:
        conf.setIfMissing("spark.driver.extraJavaOptions", "-Xss4m")
    conf.setIfMissing("spark.log.level", str(options.SPARK_LOG_LEVEL.read(configuration)))
    for key in configuration.key_set():
        if key.startswith("spark."):
            conf.set(key, configuration.get_string(key, ""))
    if master is not None:
        given = manager_settings(master, configuration, lambda key: conf.get(key, None), cores)
        for key, value in given.items():
            conf.set(key, value)
    return conf, master


def _set_up_local(conf: SparkConf, master: str, java: Java | None) -> None:
    """Add settings for Spark on this machine: start fast, and let no other user in."""
    conf.setIfMissing("spark.driver.host", "127.0.0.1")
    conf.setIfMissing("spark.shuffle.compress", "false")  # there is no network in between
    conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1")
    java_options = f"{JAVA_OPTIONS} {class_archive.java_options(java)}" if java else JAVA_OPTIONS
    conf.setIfMissing("spark.driver.extraJavaOptions", java_options.strip())
    if not master.startswith("local-cluster"):  # for which Spark makes no secret
        # Spark's ports are open to all users of the machine.
        conf.setIfMissing("spark.authenticate", "true")
    for key, value in socket_settings().items():
        conf.setIfMissing(key, value)
    _let_workers_import_what_the_program_can()


def _let_workers_import_what_the_program_can() -> None:
    """Add the folder of the program to PYTHONPATH: Python itself adds it for the driver only."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    beside = [path for path in sys.path[:1] if os.path.isdir(path or ".")]
    paths = [os.path.abspath(path) for path in beside] + [path for path in known if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def _with_retries(master: str) -> str:
    """Return local[N,4] for local[N], which would give up after one failed task; a cluster tries four
    times."""
    local = re.fullmatch(r"local(?:\[([0-9*]+)\])?", master)
    return f"local[{local.group(1) or 1},4]" if local else master


def _launch_gateway(conf: SparkConf) -> JavaGateway:
    """Start the JVM with its stderr filtered, because what Spark prints on every start helps nobody."""
    from pyspark.java_gateway import launch_gateway

    reading, writing = os.pipe()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": writing})
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    stream = os.fdopen(reading, "r", encoding="utf-8", errors="replace")
    threading.Thread(target=_pass_on, args=(stream,), name="spark-stderr", daemon=True).start()
    return gateway


def _pass_on(stream: IO[str]) -> None:
    with stream:
        for line in stream:
            if not _NOISE.search(line):
                sys.stderr.write(line)


def _silence(context: SparkContext) -> None:
    # A program that switches logging on wants its own messages, but not each call into the JVM.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    say_nothing_when_it_dies(context)
    log4j = context._jvm.org.apache.logging.log4j
    for logger in _QUIET_LOGGERS:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def ship_python_files(session: SparkSession, configuration: Configuration) -> None:
    """Make the program's own modules importable on workers (python.files)."""
    given = options.PYTHON_FILES.read(configuration)
    context = session.sparkContext
    for path in (Path(part.strip()) for part in (given or "").split(",") if part.strip()):
        if str(path) in _shipped.setdefault(context.applicationId, set()):
            continue
        _shipped[context.applicationId].add(str(path))
        context.addPyFile(str(_zipped(path, Path(), path.name) if path.is_dir() else path))


def _ship_package(context: SparkContext) -> None:
    """Send Millpond to the executors, which need not have it installed."""
    import millpond

    context.addPyFile(str(_zipped(Path(millpond.__file__).parent, Path("millpond"), "millpond")))


def _zipped(folder: Path, prefix: Path, name: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millpond-")) / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(folder.rglob("*.py")):
            package.write(file, prefix / file.relative_to(folder))
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    return path
