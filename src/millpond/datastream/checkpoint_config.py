"""When and how state is made durable.

Every batch is a checkpoint: input positions, state and output of a batch become durable together. So there
are more checkpoints than a program asks for. The interval is kept but has no effect, because output that
waited for it would be late. `millpond.batch.interval-ms` is the shortest time between batches.
"""

from __future__ import annotations

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.datastream.checkpointing_mode import CheckpointingMode
from millpond.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from millpond.missing import MissingMethods

_MODE = "execution.checkpointing.mode"


class CheckpointConfig(MissingMethods):
    """A view of the job's configuration, from `StreamExecutionEnvironment.get_checkpoint_config()`. Setters
    return the object itself.

    Methods of PyFlink's class that have no meaning here raise MissingMethodError.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Return True if checkpoints outlive the process, that is, if `execution.checkpointing.dir` is
        set."""
        return self._configuration.contains_key(options.CHECKPOINT_DIR.key)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode that was set; EXACTLY_ONCE by default."""
        return CheckpointingMode[self._configuration.get_string(_MODE, "EXACTLY_ONCE")]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the mode. State sees every record exactly once in both modes; AT_LEAST_ONCE would not be
        faster."""
        self._configuration.set_string(_MODE, checkpointing_mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the interval that was set, in milliseconds; -1 by default."""
        is_set = self._configuration.contains_key(options.CHECKPOINT_INTERVAL.key)
        return options.CHECKPOINT_INTERVAL.read_ms(self._configuration) if is_set else -1

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Keep the interval for PyFlink programs. It has no effect: every batch is a checkpoint."""
        self._configuration.set_integer(options.CHECKPOINT_INTERVAL.key, checkpoint_interval)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the folder for durable state (`execution.checkpointing.dir`)."""
        self._configuration.set_string(options.CHECKPOINT_DIR.key, checkpoint_path)
        return self

    def get_checkpoint_timeout(self) -> int:
        """Return the time limit of a batch in milliseconds; 0 means none."""
        return options.CHECKPOINT_TIMEOUT.read_ms(self._configuration)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the milliseconds after which a batch is abandoned as if it had failed; 0 means never."""
        self._configuration.set_integer(options.CHECKPOINT_TIMEOUT.key, checkpoint_timeout)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many times in a row a batch may time out before the job fails."""
        return int(options.TOLERATED_TIMEOUTS.read(self._configuration))

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many times in a row a batch may time out (`set_checkpoint_timeout`) and be run again.

        After that the job has failed, and its restart strategy decides.
        """
        self._configuration.set_integer(
            options.TOLERATED_TIMEOUTS.key, tolerable_checkpoint_failure_number
        )
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Return 1: batches run one after the other."""
        return 1

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the shortest pause between two batches, in milliseconds."""
        return options.MIN_PAUSE.read_ms(self._configuration)

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> CheckpointConfig:
        """Set the shortest time from the end of a batch to the start of the next, in milliseconds."""
        self._configuration.set_integer(options.MIN_PAUSE.key, min_pause_between_checkpoints)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return what happens to the job folder of a cancelled job."""
        return ExternalizedCheckpointRetention[options.RETENTION.read(self._configuration)]

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether the job folder of a cancelled job is kept; it is by default."""
        self._configuration.set_string(options.RETENTION.key, retention_mode.name)
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return True if the job folder of a cancelled job is kept."""
        retained = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        return self.get_externalized_checkpoint_retention() is retained
