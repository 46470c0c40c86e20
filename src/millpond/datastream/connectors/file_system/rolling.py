"""When a part file of a file sink is complete, and what it is called. With PyFlink's names."""

from __future__ import annotations

from millpond.errors import ProgramError


class RollingPolicy:
    """When a part file is closed, and so becomes visible."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> DefaultRollingPolicy:
        """A part is closed before it would be larger than `part_size` bytes, when it is `rollover_interval`
        milliseconds old, or when nothing has come for `inactivity_interval` milliseconds."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """With every epoch, which is every batch: output is visible at once, in many files."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    def __init__(
        self, part_size: int, rollover_interval_ms: int, inactivity_interval_ms: int
    ) -> None:
        if min(part_size, rollover_interval_ms, inactivity_interval_ms) <= 0:
            raise ProgramError("A rolling policy needs a size and intervals above 0.")
        self.part_size = part_size
        self.rollover_interval_ms = rollover_interval_ms
        self.inactivity_interval_ms = inactivity_interval_ms


class OnCheckpointRollingPolicy(RollingPolicy):
    """A part for every epoch and subtask."""


class OutputFileConfig:
    """Names of part files: prefix and suffix."""

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        self._part_prefix = part_prefix
        self._part_suffix = part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        return self._part_prefix

    def get_part_suffix(self) -> str:
        return self._part_suffix

    class OutputFileConfigBuilder:
        def __init__(self) -> None:
            self._prefix, self._suffix = "part", ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            return OutputFileConfig(self._prefix, self._suffix)
