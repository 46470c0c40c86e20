"""When a part file of a file sink is complete, and how it is named. With PyFlink's names."""

from __future__ import annotations

from millpond.errors import ProgramError


class RollingPolicy:
    """Decides when a part file is closed, and so becomes visible."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> DefaultRollingPolicy:
        """Return a policy by size and time; raise ProgramError unless all values are above 0.

        A part is closed before it would exceed `part_size` bytes, when it is `rollover_interval` milliseconds
        old, or when nothing has come for `inactivity_interval` milliseconds.
        """
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy that closes parts with every epoch, which is every batch: output is visible at
        once, in many files."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Closes parts by size and time; see `RollingPolicy.default_rolling_policy`."""

    def __init__(
        self, part_size: int, rollover_interval_ms: int, inactivity_interval_ms: int
    ) -> None:
        if min(part_size, rollover_interval_ms, inactivity_interval_ms) <= 0:
            raise ProgramError("The size and the intervals of a rolling policy must be above 0.")
        self.part_size = part_size
        self.rollover_interval_ms = rollover_interval_ms
        self.inactivity_interval_ms = inactivity_interval_ms


class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes a part for every epoch and subtask."""


class OutputFileConfig:
    """The names of part files: their prefix and suffix."""

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        self._part_prefix = part_prefix
        self._part_suffix = part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder; the default names are `part-...` without a suffix."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return what part files begin with."""
        return self._part_prefix

    def get_part_suffix(self) -> str:
        """Return what part files end with."""
        return self._part_suffix

    class OutputFileConfigBuilder:
        """Builds an OutputFileConfig. Setters return the builder itself."""

        def __init__(self) -> None:
            self._prefix, self._suffix = "part", ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set what part files begin with."""
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set what part files end with, such as `.csv`."""
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Return the configuration."""
            return OutputFileConfig(self._prefix, self._suffix)
