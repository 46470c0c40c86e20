"""Settings of a job that PyFlink keeps in an object of its own."""

from __future__ import annotations

from typing import Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.restart_settings import restart_strategy_of
from millpond.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millpond.missing import MissingMethods


class ExecutionConfig(MissingMethods):
    """A view on the job's configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._restart_strategy: RestartStrategyConfiguration = RestartStrategies.fall_back_restart()
        self._job_parameters: dict[str, str] = {}

    def get_parallelism(self) -> int:
        return int(options.PARALLELISM.read(self._configuration))

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        self._configuration.set_integer(options.PARALLELISM.key, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1 if it follows from the parallelism."""
        return self._configuration.get_integer("pipeline.max-parallelism", -1)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        self._configuration.set_integer("pipeline.max-parallelism", max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        return self._configuration.get_integer("pipeline.auto-watermark-interval", 200)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Kept, but without effect: Millpond's watermarks advance with every record."""
        self._configuration.set_integer("pipeline.auto-watermark-interval", interval)
        return self

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> ExecutionConfig:
        self._restart_strategy = restart_strategy_configuration
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """What the program has set, else what settings say (`restart-strategy.type`)."""
        own = self._restart_strategy
        if isinstance(own, RestartStrategies.FallbackRestartStrategyConfiguration):
            return restart_strategy_of(self._configuration)
        return own

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        self._configuration.set_boolean(options.AUTO_UIDS.key, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        self._configuration.set_boolean(options.AUTO_UIDS.key, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        return bool(options.AUTO_UIDS.read(self._configuration))

    def get_global_job_parameters(self) -> dict[str, str]:
        return dict(self._job_parameters)

    def set_global_job_parameters(
        self, global_job_parameters_dict: dict[str, Any]
    ) -> ExecutionConfig:
        self._job_parameters = {str(k): str(v) for k, v in global_job_parameters_dict.items()}
        return self
