"""Looks records up in Redis, many at once. Needs the extra `redis` on every machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from millpond.datastream.bundle_functions import BundleMapFunction
from millpond.datastream.connectors.redis.connection import (
    Command,
    connect,
    hidden,
    in_parts,
    is_cluster,
    redis_is_away,
)
from millpond.datastream.functions import RuntimeContext
from millpond.errors import JobExecutionError

# A batch may run again, so a look-up must not change anything.
_READS = frozenset(
    ["GET", "MGET", "GETRANGE", "STRLEN", "EXISTS", "TYPE", "TTL", "PTTL", "GETBIT", "BITCOUNT"]
    + ["HGET", "HMGET", "HGETALL", "HEXISTS", "HLEN", "HKEYS", "HVALS", "LRANGE", "LLEN", "LINDEX"]
    + ["SISMEMBER", "SMISMEMBER", "SMEMBERS", "SCARD", "ZSCORE", "ZMSCORE", "ZRANK", "ZRANGE"]
    + ["ZRANGEBYSCORE", "ZCARD", "ZCOUNT"]
)


class RedisLookup(BundleMapFunction):
    """A map function that asks Redis about each record.

    `to_command` returns a command that only reads, such as ("GET", key), ("HGETALL", key) or ("SISMEMBER",
    key, member), or None to ask nothing. `combine` makes the result from the record and the answer (None if
    nothing was asked); without it, results are pairs of both.

    The commands of a bundle are sent together, equal ones once. A batch that runs again may get other
    answers; the results of its first attempt are then never seen. `url` is as for `RedisSink`. Answers are
    text, or bytes if `decode` is False. If Redis does not answer, the job waits for `patience_s` and then
    fails.
    """

    def __init__(
        self,
        url: str,
        to_command: Callable[[Any], Command | None],
        combine: Callable[[Any, Any], Any] | None = None,
        decode: bool = True,
        patience_s: float = 60.0,
    ) -> None:
        self._url = url
        self._to_command = to_command
        self._combine = combine
        self._decode = decode
        self._patience_s = patience_s
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def open(self, runtime_context: RuntimeContext) -> None:
        if not is_cluster(self._url):  # a client of a cluster connects at once
            self._client = connect(self._url, self._decode)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def map_many(self, values: list[Any]) -> list[Any]:
        commands = [self._to_command(value) for value in values]
        different = list(dict.fromkeys(command for command in commands if command is not None))
        for command in different:
            if str(command[0]).upper() not in _READS:
                raise ValueError(
                    f"RedisLookup takes commands that only read, such as GET or HGETALL, not {command[0]}."
                )
        answers: dict[Command | None, Any] = dict(zip(different, self._ask(different), strict=True))
        results = [answers.get(command) for command in commands]
        if self._combine is None:
            return list(zip(values, results, strict=True))
        return list(map(self._combine, values, results))

    def _ask(self, commands: list[Command]) -> list[Any]:
        away = redis_is_away()
        give_up_s = time.monotonic() + self._patience_s
        pause_s = 0.05
        while True:
            try:
                if self._client is None:
                    self._client = connect(self._url, self._decode)
                answers: list[Any] = []
                for part in in_parts(commands):
                    pipeline = self._client.pipeline(transaction=False)
                    for command in part:
                        pipeline.execute_command(*command)
                    answers += pipeline.execute()
                return answers
            except away as problem:
                self._client = None
                if time.monotonic() > give_up_s:
                    raise JobExecutionError(
                        f"Redis at {hidden(self._url)} has not answered for {self._patience_s:g} s: "
                        f"{problem}."
                    ) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)
