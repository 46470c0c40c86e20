"""PyFlink's module name for `CompletableFuture`; it lives in `millpond.common.job`."""

from millpond.common.job import CompletableFuture

__all__ = ["CompletableFuture"]
