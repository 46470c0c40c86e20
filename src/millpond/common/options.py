"""The settings that Millpond reads, each with its default and meaning. `millpond settings` lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from millpond.common.configuration import Configuration
from millpond.errors import ProgramError


@dataclass(frozen=True)
class Option:
    """A setting: its key, its default and, for `millpond settings`, what it means."""

    key: str
    default: Any
    meaning: str

    def read(self, configuration: Configuration) -> Any:
        """Return the value in the type of the default: bool, int, float or text; the default if it is not
        set.

        Raise ProgramError, naming the key, if the value does not fit.
        """
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
        """Return a size such as 64mb, 512 kb or 4096 in bytes; raise ProgramError if the value is not a
        size."""
        text = str(configuration.get_string(self.key, self.default))
        size = re.fullmatch(r"\s*(\d+)\s*(b|kb|mb|gb|)\s*", text.lower())
        if size is None:
            raise ProgramError(
                f"The setting '{self.key}' must be a size such as 64mb, not '{text}'."
            )
        return int(size[1]) * _UNITS[size[2]]

    def read_ms(self, configuration: Configuration) -> int:
        """Return a time such as 10 s, 500ms, 1.5 min or 10000 in milliseconds; raise ProgramError if the
        value is not a time."""
        text = str(configuration.get_string(self.key, str(self.default)))
        time = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
        unit_ms = None if time is None else _TIMES_MS.get(time[2])
        if time is None or unit_ms is None:
            raise ProgramError(
                f"The setting '{self.key}' must be a time such as 10 s or 500 ms, not '{text}'."
            )
        return round(float(time[1]) * unit_ms)

    def read_ms_if_set(self, configuration: Configuration) -> int | None:
        """Return a time of at least 1 ms, or None if it is not set."""
        if not configuration.contains_key(self.key):
            return None
        milliseconds = self.read_ms(configuration)
        if milliseconds < 1:
            raise ProgramError(f"The setting '{self.key}' must be a time of 1 ms or more.")
        return milliseconds

    def read_choice(self, configuration: Configuration, choices: tuple[str, ...]) -> str:
        """Return the value in lower case; raise ProgramError if it is not one of `choices`."""
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
    "millpond.executor",
    "spark",
    "spark; or direct, which runs a bounded job in the calling process",
)
MASTER = Option(
    "millpond.master",
    None,
    "the Spark master; default: the one that spark-submit gives, else local[*]",
)
MASTER_UI = Option(
    "millpond.cluster.master-ui",
    None,
    "address of a standalone Spark master's web page, http://HOST:PORT, from which the dispatcher "
    "reads the number of slots",
)
MASTER_UI_KEY_FILE = Option(
    "millpond.cluster.master-ui-key-file",
    None,
    "file with the key of Spark's JWSFilter (its secretKey), if the standalone master's page has that filter",
)
JOB_ID = Option(
    "millpond.job-id",
    None,
    "id for a new job, 32 hexadecimal digits; a job that resumes in its job folder keeps the id "
    "it has there",
)
PARALLELISM = Option(
    "parallelism.default", 0, "subtasks per operator; 0: as many as the cluster has cores"
)
CHECKPOINT_DIR = Option(
    "execution.checkpointing.dir",
    None,
    "folder for the durable state of jobs; a job that was killed resumes from there when it is "
    "started again",
)
CHECKPOINT_RETAIN = Option(
    "millpond.checkpoint.retain-on-finish", False, "keep the job folder of a finished job"
)
RETENTION = Option(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    "what happens to the job folder of a cancelled job: RETAIN_ON_CANCELLATION or "
    "DELETE_ON_CANCELLATION",
)
STOP_AT_END = Option(
    "millpond.input.stop-at-end",
    False,
    "end the job once all available input has been read, after advancing event time to the newest "
    "record; the job folder is kept, and when started again the job continues with the input "
    "that has arrived since",
)
ADVANCE_AT_END = Option(
    "millpond.input.advance-at-end",
    True,
    "with stop-at-end: advance event time to the newest record; false: leave it where it is",
)
CHECKPOINT_INTERVAL = Option(
    "execution.checkpointing.interval",
    "0 ms",
    "accepted, as Flink has it: every batch is a checkpoint, see millpond.batch.interval-ms",
)
MIN_PAUSE = Option(
    "execution.checkpointing.min-pause",
    "0 ms",
    "shortest time from the end of a batch to the start of the next",
)
TOLERATED_TIMEOUTS = Option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    "how many times in a row a batch may time out and be run again before the restart strategy decides",
)
CHECKPOINT_TIMEOUT = Option(
    "execution.checkpointing.timeout",
    "0 ms",
    "time limit of a batch; a batch that takes longer is abandoned as if it had failed; 0: no limit",
)
RESTART_STRATEGY = Option(
    "restart-strategy.type",
    "none",
    "what to do when a job fails, unless the program sets a strategy: none, fixed-delay, "
    "exponential-delay or failure-rate",
)
FIXED_ATTEMPTS = Option(
    "restart-strategy.fixed-delay.attempts", 1, "how many times a failed job is restarted"
)
FIXED_DELAY = Option("restart-strategy.fixed-delay.delay", "1 s", "wait before each restart")
BACKOFF_INITIAL = Option(
    "restart-strategy.exponential-delay.initial-backoff", "1 s", "wait before the first restart"
)
BACKOFF_MAX = Option(
    "restart-strategy.exponential-delay.max-backoff", "1 min", "longest wait before a restart"
)
BACKOFF_MULTIPLIER = Option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    1.5,
    "factor by which the wait grows after each failure",
)
BACKOFF_RESET = Option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    "1 h",
    "time without a failure after which the wait starts over at initial-backoff",
)
BACKOFF_JITTER = Option(
    "restart-strategy.exponential-delay.jitter-factor",
    0.1,
    "largest random deviation of a wait, as a share of it, from 0 to 1",
)
BACKOFF_ATTEMPTS = Option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    2_147_483_647,
    "how many times a job is restarted before it is given up, counted since the wait last started over",
)
RATE_FAILURES = Option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    "failures that an interval may have; after one more the job is given up",
)
RATE_INTERVAL = Option(
    "restart-strategy.failure-rate.failure-rate-interval",
    "1 min",
    "length of the interval in which failures are counted",
)
RATE_DELAY = Option("restart-strategy.failure-rate.delay", "1 s", "wait before each restart")
CHECKPOINTS_KEPT = Option(
    "execution.checkpointing.num-retained",
    1,
    "accepted, as Flink has it: a job goes on from its newest checkpoint, and no other one is kept",
)
SAVEPOINT_DIR = Option(
    "execution.checkpointing.savepoint-dir",
    None,
    "folder for savepoints that are requested without one",
)
SAVEPOINT_PATH = Option(
    "execution.state-recovery.path",
    None,
    "savepoint that a job starts from if its job folder is new",
)
ALLOW_NON_RESTORED = Option(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    "start from a savepoint even if it has state of operators that are not in the program",
)
STATE_BACKEND = Option(
    "state.backend.type",
    "hashmap",
    "where a running job keeps its state: hashmap, rocksdb, memory, or package.Class for your own "
    "backend",
)
STATE_LOCAL_DIR = Option(
    "state.backend.local-dir",
    None,
    "folder on a local disk for backends that need one; default: the folder for temporary files",
)
ROCKSDB_CACHE = Option(
    "state.backend.rocksdb.block.cache-size", "64mb", "size of RocksDB's block cache, per slot"
)
ROCKSDB_BLOCK_SIZE = Option(
    "state.backend.rocksdb.block.blocksize", "4kb", "size of a block in RocksDB's files"
)
ROCKSDB_BUFFER_SIZE = Option(
    "state.backend.rocksdb.writebuffer.size",
    "32mb",
    "size of a write buffer; changes are collected in it before they go to disk",
)
ROCKSDB_BUFFERS = Option(
    "state.backend.rocksdb.writebuffer.count",
    3,
    "most write buffers at a time, including the one in use",
)
ROCKSDB_BLOOM = Option(
    "state.backend.rocksdb.use-bloom-filter",
    True,
    "use bloom filters, so that looking up an absent key reads nothing from disk",
)
ROCKSDB_BLOOM_BITS = Option(
    "state.backend.rocksdb.bloom-filter.bits-per-key", 10, "bits per key in the bloom filters"
)
ROCKSDB_COMPRESSION = Option(
    "state.backend.rocksdb.compression",
    "lz4",
    "compression of RocksDB's files: none, snappy, lz4 or zstd",
)
ROCKSDB_COMPACTION = Option(
    "state.backend.rocksdb.compaction.style",
    "level",
    "how RocksDB compacts its files: level or universal",
)
ROCKSDB_THREADS = Option(
    "state.backend.rocksdb.thread.num", 2, "threads that write and compact in the background"
)
ROCKSDB_FACTORY = Option(
    "state.backend.rocksdb.options-factory",
    None,
    "package.function(options, table_options) that adjusts rocksdict's Options and BlockBasedOptions",
)
MAX_BATCH_RECORDS = Option(
    "millpond.batch.max-records", 2_000_000, "most records that a source may give to one batch"
)
TARGET_BATCH_MS = Option(
    "millpond.batch.target-ms",
    10_000,
    "duration in ms up to which batches grow while much input is waiting; else they take about 200 ms",
)
TARGET_LATENCY = Option(
    "millpond.target-latency",
    None,
    "how late output may be, such as 500ms or 2s: batches are made as large as this allows, and "
    "millpond.batch.target-ms is ignored",
)
BATCH_INTERVAL_MS = Option(
    "millpond.batch.interval-ms",
    50,
    "shortest time between the starts of two batches, in ms; batches of few records would otherwise follow "
    "each other without a pause, and keep a core busy (direct executor: 0)",
)
FRAME_RECORDS = Option("millpond.frame.max-records", 8192, "most records in one frame")
ORDER_ACROSS_KEYS = Option(
    "millpond.order-across-keys",
    True,
    "whether keyed functions get records in the order in which they came, whatever their keys, as in Flink; "
    "false keeps their order for each key only, which is faster if there is much state and much to catch up "
    "with",
)
SLOT_MEMORY_MB = Option(
    "millpond.slot.memory-mb",
    0,
    "memory limit of a slot in MB; 0: an equal share of 70 % of the machine's memory",
)
SLOT_HANG_TIMEOUT_S = Option(
    "millpond.slot.hang-timeout-s",
    60,
    "seconds without a sign of life after which a slot is killed",
)
SLOT_IDLE_TIMEOUT_S = Option(
    "millpond.slot.idle-timeout-s", 600, "seconds without work after which a slot ends"
)
SLOT_KEEP_S = Option(
    "millpond.slot.keep-s",
    60,
    "seconds for which a slot waits, with its state, for the job to be started again after Spark or the "
    "driver has died; 0: it ends at once",
)
QUERYABLE_HOST = Option(
    "queryable-state.server.bind-host",
    None,
    "address on which slots answer look-ups; default: 127.0.0.1, or on a cluster the executor's host",
)
QUERYABLE_PORTS = Option(
    "queryable-state.server.ports",
    "0",
    "port, or range of ports such as 9067-9077, for look-ups; 0: any free port",
)
SPARK_LOG_LEVEL = Option("millpond.spark.log-level", "ERROR", "level of Spark's own log on stderr")
PYTHON_FILES = Option(
    "python.files",
    None,
    "modules, packages, folders or zip files that workers need, separated by commas",
)
DYNAMIC_ALLOCATION = Option(
    "millpond.dynamic-allocation",
    "off",
    "on: idle executors are released, and requested again when tasks are waiting; needs a "
    "cluster, and parallelism.default set",
)
MIN_EXECUTORS = Option("millpond.dynamic-allocation.min", 1, "executors that are never released")
MAX_EXECUTORS = Option(
    "millpond.dynamic-allocation.max", 0, "most executors at a time; 0: no limit"
)
KUBERNETES_IMAGE = Option(
    "millpond.kubernetes.image", None, "container image of the executors, if the master is k8s://"
)
RUNTIME_MODE = Option("execution.runtime-mode", "STREAMING", "STREAMING, BATCH or AUTOMATIC")
AUTO_UIDS = Option(
    "pipeline.auto-generate-uids",
    True,
    "allow operators with state to have no uid; false: each must have one",
)

ALL = [value for value in list(globals().values()) if isinstance(value, Option)]
_OWN = "millpond."


def check(configuration: Configuration) -> None:
    """Raise ProgramError if a setting looks like one of Millpond's own and is not, or if the value of one
    that is only shown does not fit. (Settings of Flink that Millpond does not know are left alone.)"""
    CHECKPOINT_INTERVAL.read_ms(configuration)
    own = {key.removeprefix(_OWN) for key in configuration.key_set() if key.startswith(_OWN)}
    known = {option.key.removeprefix(_OWN) for option in ALL}
    for name in sorted(own - known):
        similar = get_close_matches(name, known, 1)
        hint = f"Did you mean '{_OWN}{similar[0]}'? " if similar else ""
        raise ProgramError(
            f"There is no setting '{_OWN}{name}'. {hint}`millpond settings` lists all settings."
        )
