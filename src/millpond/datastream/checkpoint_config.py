"""When and how state is made durable.

Every Millpond batch is a checkpoint: input positions, state and output of a batch become durable
together. So there are more checkpoints than the interval asks for; it is kept, and changes nothing,
because output that waits for it would be late. `millpond.batch.interval-ms` is the least time between
batches.
"""

from __future__ import annotations

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.datastream.checkpointing_mode import CheckpointingMode
from millpond.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from millpond.missing import MissingMethods

_INTERVAL = "execution.checkpointing.interval"
_MODE = "execution.checkpointing.mode"


class CheckpointConfig(MissingMethods):
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        return self._configuration.contains_key(options.CHECKPOINT_DIR.key)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return CheckpointingMode[self._configuration.get_string(_MODE, "EXACTLY_ONCE")]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """With AT_LEAST_ONCE, too, state sees every record exactly once: there is nothing to wait for that
        could be left out."""
        self._configuration.set_string(_MODE, checkpointing_mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        return self._configuration.get_integer(_INTERVAL, -1)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Kept for PyFlink programs; checkpoints come more often, with every batch."""
        self._configuration.set_integer(_INTERVAL, checkpoint_interval)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """The folder for durable state, as `execution.checkpointing.dir`."""
        self._configuration.set_string(options.CHECKPOINT_DIR.key, checkpoint_path)
        return self

    def get_checkpoint_timeout(self) -> int:
        return int(options.CHECKPOINT_TIMEOUT_MS.read(self._configuration))

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Milliseconds after which a batch is given up, as if it had failed; 0: never."""
        self._configuration.set_integer(options.CHECKPOINT_TIMEOUT_MS.key, checkpoint_timeout)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return int(options.TOLERATED_TIMEOUTS.read(self._configuration))

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """How often in a row a batch may be given up (`set_checkpoint_timeout`) and run again before the
        job has failed, and its restart strategy is asked."""
        self._configuration.set_integer(
            options.TOLERATED_TIMEOUTS.key, tolerable_checkpoint_failure_number
        )
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Batches run one after the other."""
        return 1

    def get_min_pause_between_checkpoints(self) -> int:
        return int(options.MIN_PAUSE_MS.read(self._configuration))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> CheckpointConfig:
        """Milliseconds from the end of a batch to the beginning of the next, at least."""
        self._configuration.set_integer(options.MIN_PAUSE_MS.key, min_pause_between_checkpoints)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return ExternalizedCheckpointRetention[options.RETENTION.read(self._configuration)]

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Whether the folder of a cancelled job is kept (it is if nothing is said)."""
        self._configuration.set_string(options.RETENTION.key, retention_mode.name)
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        retained = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        return self.get_externalized_checkpoint_retention() is retained
