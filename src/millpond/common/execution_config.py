"""Settings of a job that PyFlink keeps in an object of its own."""

from __future__ import annotations

from typing import Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.restart_settings import restart_strategy_of
from millpond.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millpond.missing import MissingMethods


class ExecutionConfig(MissingMethods):
    """A view of the job's configuration, from `StreamExecutionEnvironment.get_config()`. Setters return the
    object itself.

    Methods of PyFlink's class that tune Flink's runtime raise MissingMethodError.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._restart_strategy: RestartStrategyConfiguration = RestartStrategies.fall_back_restart()
        self._job_parameters: dict[str, str] = {}

    def get_parallelism(self) -> int:
        """Return the default number of subtasks per operator; 0 means one per core of the cluster."""
        return int(options.PARALLELISM.read(self._configuration))

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default number of subtasks per operator (`parallelism.default`)."""
        self._configuration.set_integer(options.PARALLELISM.key, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 if it is derived from the parallelism."""
        return self._configuration.get_integer("pipeline.max-parallelism", -1)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups. It cannot change once a job has state."""
        self._configuration.set_integer("pipeline.max-parallelism", max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return what `set_auto_watermark_interval` has set, in milliseconds; 200 by default."""
        return self._configuration.get_integer("pipeline.auto-watermark-interval", 200)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Keep the interval for PyFlink programs. It has no effect: watermarks advance with every record."""
        self._configuration.set_integer("pipeline.auto-watermark-interval", interval)
        return self

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> ExecutionConfig:
        """Set what happens when the job fails. It takes precedence over the `restart-strategy.*` settings."""
        self._restart_strategy = restart_strategy_configuration
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return the program's restart strategy, or else the one in the settings
        (`restart-strategy.type`)."""
        strategy = self._restart_strategy
        if isinstance(strategy, RestartStrategies.FallbackRestartStrategyConfiguration):
            return restart_strategy_of(self._configuration)
        return strategy

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Allow operators without a uid to have state; the default."""
        self._configuration.set_boolean(options.AUTO_UIDS.key, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Require a uid for every operator that has state."""
        self._configuration.set_boolean(options.AUTO_UIDS.key, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return True unless every operator with state needs a uid."""
        return bool(options.AUTO_UIDS.read(self._configuration))

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return a copy of the job parameters."""
        return dict(self._job_parameters)

    def set_global_job_parameters(
        self, global_job_parameters_dict: dict[str, Any]
    ) -> ExecutionConfig:
        """Set the parameters that functions read with `RuntimeContext.get_job_parameter`, as text."""
        self._job_parameters = {str(k): str(v) for k, v in global_job_parameters_dict.items()}
        return self
