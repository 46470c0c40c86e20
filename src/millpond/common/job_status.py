"""PyFlink's module name for `JobStatus`; it lives in `millpond.common.job`."""

from millpond.common.job import JobStatus

__all__ = ["JobStatus"]
