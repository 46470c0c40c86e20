"""Redis as a sink: the commands of an epoch, in order, once the epoch counts. Needs the extra `redis`.

Workers turn records into commands; the driver sends them, pipelined, when the batch counts. So
Redis always shows the result of a whole number of batches. After a crash the commands of the last epoch may
be sent again, and must then change nothing, as is true of setting, adding to sets and removing. If Redis does
not answer, the job waits for it.
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
    """Sends the commands that `to_commands` makes from each record. They may be sent again after a crash, so
    they must be safe to repeat: setting, adding to a set and removing are, INCR and LPUSH are not.

    `last_wins`: of the SADD, SREM, HSET and HDEL commands of an epoch for the same key and member or field,
    send only the last; of other commands, the last of each name and key. `url`: redis://HOST:PORT/DB,
    rediss:// or unix://; for a cluster, redis+cluster://HOST:PORT. `patience_s`: how many seconds to wait for
    a Redis that does not answer.
    """

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
        if not is_cluster(self._url):  # a client of a cluster connects at once
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
        pause_s, has_warned = 0.05, False
        while True:
            try:
                if self._client is None:
                    self._client = connect(self._url)
                for part in in_parts(commands):
                    pipeline = self._client.pipeline(transaction=False)
                    for command in part:
                        pipeline.execute_command(*command)
                    pipeline.execute()
                return
            except away as problem:
                self._client = None
                if time.monotonic() > give_up_s:
                    raise JobExecutionError(
                        f"Redis at {hidden(self._url)} has not answered for {self._patience_s:g} s: "
                        f"{problem}. The output of epoch {epoch.number} is kept, and is sent when the job "
                        "resumes."
                    ) from None
                if not has_warned:
                    _log.warning("Redis at %s: %s. Waiting for it.", hidden(self._url), problem)
                    has_warned = True
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
            target = command[1:3] if command[0] in ("SADD", "SREM", "HSET", "HDEL") else command[:2]
            last.pop(target, None)
            last[target] = command
        return list(last.values())
