"""A connection of a client to the server of a slot: many requests under way at once."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from millpond.queryable.protocol import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    Decoder,
    MessageKind,
    ProtocolError,
    encode,
)


class Disconnected(Exception):
    """The server is gone, or refused us. Somebody else may have its place."""


class SlotConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._decoder = Decoder(MAX_ANSWER_BYTES)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._transport: asyncio.Transport | None = None
        self._end: Disconnected | None = None

    @staticmethod
    async def open(address: dict[str, Any], timeout_s: float) -> SlotConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    SlotConnection, address["host"], address["port"]
                )
                try:
                    await connection._ask(MessageKind.HELLO, {"token": address["token"]})
                except BaseException:
                    connection.close()
                    raise
        except (OSError, TimeoutError) as problem:
            where = f"{address['host']}:{address['port']}"
            raise Disconnected(f"nobody answers at {where} ({problem})") from None
        return connection

    @property
    def is_open(self) -> bool:
        return self._end is None

    async def get(self, content: dict[str, Any]) -> dict[str, Any]:
        """The content of the answer to GET. Disconnected if there will be none."""
        answer = await self._ask(MessageKind.GET, content)
        if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
            raise Disconnected("the server sent something that is no answer")
        return answer

    async def _ask(self, kind: MessageKind, content: Any) -> Any:
        if self._end is not None:
            raise self._end
        assert self._transport is not None
        number = next(self._numbers) & 0xFFFFFFFF
        data = encode(kind, number, content)
        if len(data) > MAX_REQUEST_BYTES:
            raise ValueError(
                f"a look-up of {len(data)} bytes; at most {MAX_REQUEST_BYTES} can be sent"
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._transport.write(data)
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        self._finish(Disconnected("the connection was closed"))

    # --- called by asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        try:
            while (message := self._decoder.next()) is not None:
                if message.kind is MessageKind.REFUSED:
                    raise ProtocolError(f"the server refused: {message.content.get('reason')}")
                waiting = self._waiting.pop(message.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message.content)
        except ProtocolError as problem:
            self._finish(Disconnected(str(problem)))

    def connection_lost(self, problem: Exception | None) -> None:
        self._finish(Disconnected(f"the connection to the slot is lost ({problem})"))

    def _finish(self, end: Disconnected) -> None:
        if self._end is None:
            self._end = end
            if self._transport is not None:
                self._transport.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(end)
