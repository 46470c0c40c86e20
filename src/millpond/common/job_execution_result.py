"""PyFlink's module name for `JobExecutionResult`; it lives in `millpond.common.job`."""

from millpond.common.job import JobExecutionResult

__all__ = ["JobExecutionResult"]
