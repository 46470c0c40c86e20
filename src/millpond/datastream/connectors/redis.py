"""Redis as a sink: commands of an epoch, in order, once the epoch counts. Needs the extra `redis`.

Workers make commands of records; the driver sends them, pipelined, when Spark has committed the batch. So
what is in Redis is always that of a whole number of batches. After a crash the commands of the last epoch may
be sent again: they must change nothing then, as setting, adding to sets and removing do. A Redis that is away
is waited for.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext
from millpond.errors import JobExecutionError, ProgramError, SetupError

Command = tuple[Any, ...]  # name and arguments, such as ("SADD", "cap:{42}", "ad:7")
_AT_ONCE = 1000
_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)


class RedisSink(TwoPhaseSink):
    """`to_commands` makes commands of a record. Commands that may be sent again without harm are those that
    set, add to a set, or remove; INCR and LPUSH are not.

    `last_wins`: of several commands of an epoch with the same key and first argument after it, as SADD and
    SREM of a member have, only the last is sent. `url`: redis://HOST:PORT/DB, rediss://, unix://; of a
    cluster, redis+cluster://HOST:PORT. `patience_s`: how long to wait for a Redis that does not answer."""

    def __init__(
        self,
        url: str,
        to_commands: Callable[[Any], Iterable[Command]],
        last_wins: bool = False,
        patience_s: float = 60.0,
    ) -> None:
        self._url = url
        self._to_commands = to_commands
        self._last_wins = last_wins
        self._patience_s = patience_s
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def validate(self) -> None:
        if not is_cluster(self._url):  # a client of a cluster asks at once who belongs to it
            connect(self._url)

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _CommandWriter(self._to_commands, self._last_wins)

    def commit(self, epoch: Epoch, messages: list[list[Command]]) -> None:
        commands = [command for message in messages for command in message]
        if commands:
            self._send(epoch, commands)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, epoch: Epoch, commands: list[Command]) -> None:
        away = redis_is_away()
        give_up_s = time.monotonic() + self._patience_s
        pause_s, told = 0.05, False
        while True:
            try:
                if self._client is None:
                    self._client = connect(self._url)
                for some in in_parts(commands):
                    pipeline = self._client.pipeline(transaction=False)
                    for command in some:
                        pipeline.execute_command(*command)
                    pipeline.execute()
                return
            except away as problem:
                self._client = None
                if time.monotonic() > give_up_s:
                    raise JobExecutionError(
                        f"Redis at {hidden(self._url)} has not answered for {self._patience_s:g} s: "
                        f"{problem}. The output of epoch {epoch.number} is kept, and is sent when the job "
                        "goes on."
                    ) from None
                if not told:
                    _log.warning("Redis at %s: %s. Waiting for it.", hidden(self._url), problem)
                    told = True
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)


class _CommandWriter(SinkWriter):
    def __init__(self, to_commands: Callable[[Any], Iterable[Command]], last_wins: bool) -> None:
        self._to_commands = to_commands
        self._last_wins = last_wins
        self._commands: list[Command] = []

    def write(self, value: Any, context: SinkContext) -> None:
        self._commands.extend(self._to_commands(value))

    def prepare(self) -> list[Command]:
        if not self._last_wins:
            return self._commands
        last: dict[tuple[Any, ...], Command] = {}
        for command in self._commands:
            place = command[1:3] if command[0] in ("SADD", "SREM", "HSET", "HDEL") else command[:2]
            last.pop(place, None)
            last[place] = command
        return list(last.values())


def in_parts(commands: list[Command]) -> Iterator[list[Command]]:
    rest = iter(commands)
    while part := list(islice(rest, _AT_ONCE)):
        yield part


def redis_is_away() -> tuple[type[Exception], ...]:
    """The errors of a Redis that may answer later."""
    redis = _redis()
    return (
        *(redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError),
        *(redis.ReadOnlyError, redis.exceptions.RedisClusterException),
        *(redis.exceptions.ClusterDownError, redis.exceptions.TryAgainError),
    )


def connect(url: str, decode: bool = False) -> Any:
    """A client; nothing is sent yet, except to a cluster. `decode`: answers are text, not bytes."""
    redis = _redis()
    settings: dict[str, Any] = {"socket_timeout": _TIMEOUT_S, "decode_responses": decode}
    try:
        if is_cluster(url):
            own = url.replace("+cluster", "", 1)
            return redis.cluster.RedisCluster.from_url(own, **settings)
        return redis.Redis.from_url(url, **settings)
    except ValueError as problem:
        raise ProgramError(f"{hidden(url)} is no URL of a Redis: {problem}.") from None


def is_cluster(url: str) -> bool:
    return url.startswith(("redis+cluster://", "rediss+cluster://"))


def hidden(url: str) -> str:
    """A URL without its password."""
    scheme, found, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else url


def _redis() -> Any:
    try:
        return importlib.import_module("redis")
    except ImportError:
        raise SetupError(
            "Redis needs the package redis: pip install 'millpond[redis]', for a sink on the driver's "
            "machine, for look-ups on every machine of the cluster."
        ) from None
