"""The settings Millpond reads, each with its default and meaning. One place, so that docs can list them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from millpond.common.configuration import Configuration
from millpond.errors import ProgramError


@dataclass(frozen=True)
class Option:
    """One setting."""

    key: str
    default: Any
    meaning: str

    def read(self, configuration: Configuration) -> Any:
        if isinstance(self.default, bool):
            return configuration.get_boolean(self.key, self.default)
        if isinstance(self.default, int):
            return configuration.get_integer(self.key, self.default)
        if isinstance(self.default, float):
            return configuration.get_float(self.key, self.default)
        if configuration.contains_key(self.key):
            return configuration.get_string(self.key, "")
        return self.default

    def read_bytes(self, configuration: Configuration) -> int:
        """A size such as 64mb, 512 kb or 4096."""
        text = str(configuration.get_string(self.key, self.default))
        found = re.fullmatch(r"\s*(\d+)\s*(b|kb|mb|gb|)\s*", text.lower())
        if found is None:
            raise ProgramError(
                f"The setting '{self.key}' must be a size such as 64mb, not '{text}'."
            )
        return int(found[1]) * _UNITS[found[2]]

    def read_ms(self, configuration: Configuration) -> int:
        """A time such as 10 s, 500ms, 1.5 min or 10000 (milliseconds)."""
        text = str(configuration.get_string(self.key, str(self.default)))
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
        unit = None if found is None else _TIMES_MS.get(found[2])
        if found is None or unit is None:
            raise ProgramError(
                f"The setting '{self.key}' must be a time such as 10 s or 500 ms, not '{text}'."
            )
        return round(float(found[1]) * unit)

    def read_ms_if_set(self, configuration: Configuration) -> int | None:
        """A time of at least 1 ms, or None."""
        if not configuration.contains_key(self.key):
            return None
        milliseconds = self.read_ms(configuration)
        if milliseconds < 1:
            raise ProgramError(f"The setting '{self.key}' must be a time of 1 ms or more.")
        return milliseconds

    def read_choice(self, configuration: Configuration, choices: tuple[str, ...]) -> str:
        text = str(self.read(configuration)).lower()
        if text not in choices:
            raise ProgramError(
                f"The setting '{self.key}' must be one of {', '.join(choices)}, not '{text}'."
            )
        return text


_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}

_TIMES_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}

EXECUTOR = Option(
    "millpond.executor", "spark", "spark, or direct: run a bounded job in this process"
)
MASTER = Option(
    "millpond.master", None, "Spark master; default local[*], or what spark-submit says"
)
MASTER_UI = Option(
    "millpond.cluster.master-ui",
    None,
    "address of a standalone Spark master's page, http://HOST:PORT: the dispatcher counts slots there",
)
MASTER_UI_KEY_FILE = Option(
    "millpond.cluster.master-ui-key-file",
    None,
    "file with the key of Spark's JWSFilter (its secretKey), if the standalone master's page has that filter",
)
JOB_ID = Option(
    "millpond.job-id",
    None,
    "32 hexadecimal digits: the id of a new job; one that goes on in its folder keeps the id it has there",
)
PARALLELISM = Option("parallelism.default", 0, "subtasks per operator; 0: the cluster's cores")
CHECKPOINT_DIR = Option(
    "execution.checkpointing.dir",
    None,
    "folder for jobs' durable state; a job killed and started again goes on from there",
)
CHECKPOINT_RETAIN = Option(
    "millpond.checkpoint.retain-on-finish", False, "keep the job folder of a finished job"
)
RETENTION = Option(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    "what becomes of the folder of a cancelled job: RETAIN_ON_CANCELLATION or DELETE_ON_CANCELLATION",
)
STOP_AT_END = Option(
    "millpond.input.stop-at-end",
    False,
    "when all that is there has been read, event time goes to the newest record's, and the job ends; its "
    "folder stays, and started again the job goes on with what has come since",
)
ADVANCE_AT_END = Option(
    "millpond.input.advance-at-end",
    True,
    "with stop-at-end: whether event time goes to the newest record's; else it stays where it is",
)
MIN_PAUSE_MS = Option(
    "execution.checkpointing.min-pause",
    0,
    "least time between the end of a batch and the next, in ms",
)
TOLERATED_TIMEOUTS = Option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    "how often in a row a batch may be given up and run again before the restart strategy is asked",
)
CHECKPOINT_TIMEOUT_MS = Option(
    "execution.checkpointing.timeout",
    0,
    "a batch that takes longer than so many ms is given up, as if it had failed; 0: none is",
)
RESTART_STRATEGY = Option(
    "restart-strategy.type",
    "none",
    "what to do when a job fails, if the program does not say: none, fixed-delay, exponential-delay or "
    "failure-rate",
)
FIXED_ATTEMPTS = Option(
    "restart-strategy.fixed-delay.attempts", 1, "how often a job is started again"
)
FIXED_DELAY = Option("restart-strategy.fixed-delay.delay", "1 s", "wait before each start")
BACKOFF_INITIAL = Option(
    "restart-strategy.exponential-delay.initial-backoff", "1 s", "wait before the first start"
)
BACKOFF_MAX = Option(
    "restart-strategy.exponential-delay.max-backoff", "1 min", "wait no longer than this"
)
BACKOFF_MULTIPLIER = Option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    1.5,
    "so many times longer after each failure",
)
BACKOFF_RESET = Option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    "1 h",
    "a job that runs so long without failure begins with the first wait again",
)
BACKOFF_JITTER = Option(
    "restart-strategy.exponential-delay.jitter-factor",
    0.1,
    "each wait is longer or shorter by up to this share of it",
)
BACKOFF_ATTEMPTS = Option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    2_147_483_647,
    "failures without such a time between them before the job is given up",
)
RATE_FAILURES = Option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    "more failures than this in an interval, and the job is given up",
)
RATE_INTERVAL = Option(
    "restart-strategy.failure-rate.failure-rate-interval", "1 min", "the interval"
)
RATE_DELAY = Option("restart-strategy.failure-rate.delay", "1 s", "wait before each start")
CHECKPOINTS_KEPT = Option(
    "execution.checkpointing.num-retained",
    10,
    "how many of the newest checkpoints a job folder keeps",
)
SAVEPOINT_DIR = Option(
    "execution.checkpointing.savepoint-dir", None, "folder for savepoints if none is named"
)
SAVEPOINT_PATH = Option(
    "execution.state-recovery.path",
    None,
    "savepoint that a job starts from, if its job folder is new",
)
ALLOW_NON_RESTORED = Option(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    "start from a savepoint although it has state of operators that the program does not have",
)
STATE_BACKEND = Option(
    "state.backend.type",
    "hashmap",
    "where state lies while a job works: hashmap, rocksdb, memory, or package.Class of your own",
)
STATE_LOCAL_DIR = Option(
    "state.backend.local-dir",
    None,
    "folder on the local disk for a backend that needs one; default: the folder for temporary files",
)
ROCKSDB_CACHE = Option(
    "state.backend.rocksdb.block.cache-size", "64mb", "RocksDB's cache of blocks, per slot"
)
ROCKSDB_BLOCK_SIZE = Option("state.backend.rocksdb.block.blocksize", "4kb", "size of a block")
ROCKSDB_BUFFER_SIZE = Option(
    "state.backend.rocksdb.writebuffer.size",
    "32mb",
    "what is written is collected in memory up to this",
)
ROCKSDB_BUFFERS = Option(
    "state.backend.rocksdb.writebuffer.count", 3, "write buffers at most, one of them in use"
)
ROCKSDB_BLOOM = Option(
    "state.backend.rocksdb.use-bloom-filter", True, "look-ups of what is not there read nothing"
)
ROCKSDB_BLOOM_BITS = Option(
    "state.backend.rocksdb.bloom-filter.bits-per-key", 10, "size of the bloom filters"
)
ROCKSDB_COMPRESSION = Option(
    "state.backend.rocksdb.compression", "lz4", "none, snappy, lz4 or zstd"
)
ROCKSDB_COMPACTION = Option("state.backend.rocksdb.compaction.style", "level", "level or universal")
ROCKSDB_THREADS = Option(
    "state.backend.rocksdb.thread.num", 2, "threads that write and compact in the background"
)
ROCKSDB_FACTORY = Option(
    "state.backend.rocksdb.options-factory",
    None,
    "package.function(options, table_options) that changes rocksdict's Options and BlockBasedOptions",
)
MAX_BATCH_RECORDS = Option(
    "millpond.batch.max-records", 2_000_000, "most records a source may give to one batch"
)
TARGET_BATCH_MS = Option(
    "millpond.batch.target-ms", 10_000, "batches grow up to this duration while input is waiting"
)
TARGET_LATENCY = Option(
    "millpond.target-latency",
    None,
    "how late output may be, such as 500ms or 2s: batches are made as large as that allows, and "
    "millpond.batch.target-ms does not count",
)
TRIGGER_INTERVAL_MS = Option(
    "millpond.batch.interval-ms", 0, "least time between the starts of two batches"
)
FRAME_RECORDS = Option("millpond.frame.max-records", 8192, "records packed into one frame at most")
SLOTS = Option(
    "millpond.slots",
    "on",
    "on: state and functions live in a process per partition; off: in Spark's Python workers",
)
SLOT_MEMORY_MB = Option(
    "millpond.slot.memory-mb", 0, "memory a slot may use; 0: its share of 70 % of the machine's"
)
SLOT_HANG_TIMEOUT_S = Option(
    "millpond.slot.hang-timeout-s", 60, "a slot without a sign of life for so long is killed"
)
SLOT_IDLE_TIMEOUT_S = Option(
    "millpond.slot.idle-timeout-s", 600, "a slot without work for so long ends"
)
QUERYABLE_HOST = Option(
    "queryable-state.server.bind-host",
    None,
    "where slots answer look-ups; default 127.0.0.1, on a cluster the executor's host",
)
QUERYABLE_PORTS = Option(
    "queryable-state.server.ports", "0", "a port, or a range such as 9067-9077; 0: any that is free"
)
SPARK_LOG_LEVEL = Option("millpond.spark.log-level", "ERROR", "Spark's own log level on stderr")
PYTHON_FILES = Option(
    "python.files", None, "comma-separated modules, packages, folders or zips that workers need"
)
DYNAMIC_ALLOCATION = Option(
    "millpond.dynamic-allocation",
    "off",
    "on: executors that are idle are given back, and come again when tasks wait; needs a cluster, and "
    "parallelism.default",
)
MIN_EXECUTORS = Option("millpond.dynamic-allocation.min", 1, "executors that are never given back")
MAX_EXECUTORS = Option("millpond.dynamic-allocation.max", 0, "executors at most; 0: no limit")
KUBERNETES_IMAGE = Option(
    "millpond.kubernetes.image", None, "image of the executors, if the master is k8s://"
)
RUNTIME_MODE = Option("execution.runtime-mode", "STREAMING", "STREAMING, BATCH or AUTOMATIC")
AUTO_UIDS = Option(
    "pipeline.auto-generate-uids", True, "false: every operator with state needs a uid"
)

ALL = [value for value in list(globals().values()) if isinstance(value, Option)]
