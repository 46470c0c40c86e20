"""Connections to Redis, shared by the sink and by look-ups."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import Any

from millpond.errors import ProgramError, SetupError

Command = tuple[Any, ...]  # name and arguments, such as ("SADD", "cap:{42}", "ad:7")
_AT_ONCE = 1000
_TIMEOUT_S = 10.0


def in_parts(commands: list[Command]) -> Iterator[list[Command]]:
    """Yield the commands in parts that are small enough for one pipeline."""
    rest = iter(commands)
    while part := list(islice(rest, _AT_ONCE)):
        yield part


def redis_is_away() -> tuple[type[Exception], ...]:
    """Return the errors of a Redis that may answer later."""
    redis = _redis()
    return (
        *(redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError),
        *(redis.ReadOnlyError, redis.exceptions.RedisClusterException),
        *(redis.exceptions.ClusterDownError, redis.exceptions.TryAgainError),
    )


def connect(url: str, decode: bool = False) -> Any:
    """Return a client; raise ProgramError if the URL is not one of a Redis. With `decode`, answers are text,
    not bytes.

    Nothing is sent yet, except to a cluster.
    """
    redis = _redis()
    settings: dict[str, Any] = {"socket_timeout": _TIMEOUT_S, "decode_responses": decode}
    try:
        if is_cluster(url):
            plain_url = url.replace("+cluster", "", 1)
            return redis.cluster.RedisCluster.from_url(plain_url, **settings)
        return redis.Redis.from_url(url, **settings)
    except ValueError as problem:
        raise ProgramError(f"{hidden(url)} is not the URL of a Redis: {problem}.") from None


def is_cluster(url: str) -> bool:
    """Return True for the URL of a Redis cluster."""
    return url.startswith(("redis+cluster://", "rediss+cluster://"))


def hidden(url: str) -> str:
    """Return a URL without its password."""
    scheme, found, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else url


def _redis() -> ModuleType:
    try:
        return importlib.import_module("redis")
    except ImportError:
        raise SetupError(
            "Redis needs the package redis: pip install 'millpond[redis]', on the driver's machine for a "
            "sink, on every machine of the cluster for look-ups."
        ) from None
