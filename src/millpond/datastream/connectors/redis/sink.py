"""Redis as a sink: commands of an epoch, in order, once the epoch counts. Needs the extra `redis`.

Workers make commands of records; the driver sends them, pipelined, when Spark has committed the batch. So
what is in Redis is always that of a whole number of batches. After a crash the commands of the last epoch may
be sent again: they must change nothing then, as setting, adding to sets and removing do. A Redis that is away
is waited for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.connectors.redis.connection import (
    Command,
    connect,
    hidden,
    in_parts,
    is_cluster,
    redis_is_away,
)
from millpond.datastream.functions import SinkContext
from millpond.errors import JobExecutionError

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
