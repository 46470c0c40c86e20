"""PyFlink's module name for `JobID`; it lives in `millpond.common.job`."""

from millpond.common.job import JobID

__all__ = ["JobID"]
