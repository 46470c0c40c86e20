"""PyFlink's module name for `JobClient`; it lives in `millpond.common.job`."""

from millpond.common.job import JobClient

__all__ = ["JobClient"]
