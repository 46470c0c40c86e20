"""A connection of a client to the server of a slot, with many look-ups under way at once.

While answers are on their way, look-ups wait, and then go out in one message. So a client that asks seldom
gets its answers at once; and if there is much to ask, or the machine is busy, messages become larger and
fewer: a message costs both sides more than a key.
"""

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
    Status,
    encode,
)

_TOGETHER = 100  # look-ups in one message, mostly of one key each
_MESSAGES_UNDER_WAY = 2


class Disconnected(Exception):
    """The server is gone, or refused the connection. Another slot may have its partition."""


class _Question:
    """The content of a GET, and the future that waits for the content of its ANSWER."""

    __slots__ = ("answer", "content", "number")

    def __init__(self, content: dict[str, Any], answer: asyncio.Future[dict[str, Any]]) -> None:
        self.content = content
        self.answer = answer
        self.number = 0  # of the message that it was sent with

    @property
    def keys(self) -> list[Any]:
        return self.content["keys"]  # type: ignore[no-any-return]

    def fail(self, problem: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(problem)


class SlotConnection(asyncio.Protocol):
    """A connection to the server of one slot. Made by `open`."""

    def __init__(self) -> None:
        self._decoder = Decoder(MAX_ANSWER_BYTES)
        self._numbers = itertools.count(1)
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsent: list[_Question] = []
        self._waiting: dict[int, list[_Question]] = {}  # by the number of their message
        self._transport: asyncio.Transport | None = None
        self._end: Disconnected | None = None

    @staticmethod
    async def open(address: dict[str, Any], timeout_s: float) -> SlotConnection:
        """Connect to a server and show it the token. Raises Disconnected if it does not answer within
        `timeout_s`, or refuses."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    SlotConnection, address["host"], address["port"]
                )
                try:
                    connection._say_hello(address["token"])
                    await connection._welcome
                except BaseException:
                    connection.close()
                    raise
        except (OSError, TimeoutError) as problem:
            where = f"{address['host']}:{address['port']}"
            raise Disconnected(f"nobody answers at {where} ({problem})") from None
        return connection

    @property
    def is_open(self) -> bool:
        """False once the connection has ended."""
        return self._end is None

    async def get(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the answer to a GET. Raises Disconnected if there will be none, ValueError
        if it cannot be asked."""
        if self._end is not None:
            raise self._end
        loop = asyncio.get_running_loop()
        question = _Question(content, loop.create_future())
        if not self._unsent:
            loop.call_soon(self._send_unsent)
        self._unsent.append(question)
        try:
            return await question.answer
        except asyncio.CancelledError:
            together = self._waiting.get(question.number, [])
            if all(question.answer.done() for question in together):
                self._waiting.pop(question.number, None)
                self._send_unsent()
            raise

    def _say_hello(self, token: str) -> None:
        assert self._transport is not None
        self._transport.write(encode(MessageKind.HELLO, 0, {"token": token}))

    def _send_unsent(self) -> None:
        """Send what waits, unless enough messages are under way. Called again with every answer."""
        if len(self._waiting) >= _MESSAGES_UNDER_WAY:
            return
        questions = [question for question in self._unsent if not question.answer.done()]
        self._unsent = []
        if len(questions) == 1:
            self._send(questions)
            return
        alike: dict[tuple[str, str], list[_Question]] = {}
        for question in questions:
            entry = repr(question.content["entry"]) if "entry" in question.content else ""
            alike.setdefault((question.content["state"], entry), []).append(question)
        for together in alike.values():
            for begin in range(0, len(together), _TOGETHER):
                self._send(together[begin : begin + _TOGETHER])

    def _send(self, questions: list[_Question]) -> None:
        """Send questions in one message."""
        if self._end is not None:
            for question in questions:
                question.fail(self._end)
            return
        content = questions[0].content
        if len(questions) > 1:
            content = {**content, "keys": [key for question in questions for key in question.keys]}
        number = next(self._numbers) & 0xFFFFFFFF
        try:
            data = encode(MessageKind.GET, number, content)
            if len(data) > MAX_REQUEST_BYTES:
                raise ValueError(
                    f"a look-up of {len(data)} bytes; at most {MAX_REQUEST_BYTES} can be sent"
                )
        except ValueError as problem:
            self._send_apart(questions, problem)
            return
        self._waiting[number] = questions
        for question in questions:
            question.number = number
        assert self._transport is not None
        self._transport.write(data)

    def _send_apart(self, questions: list[_Question], problem: Exception) -> None:
        """Send each question alone, because they are too large for one message; fail the question if it is
        only one."""
        if len(questions) == 1:
            questions[0].fail(problem)
            return
        for question in questions:
            self._send([question])

    def _take(self, questions: list[_Question], content: Any) -> None:
        """Give the answer to one message to those who asked."""
        results = content.get("results") if isinstance(content, dict) else None
        if not isinstance(results, list) or len(results) != sum(
            len(question.keys) for question in questions
        ):
            raise ProtocolError("the server sent something that is not an answer")
        if len(questions) > 1 and any(result[0] == Status.FAILED for result in results):
            # Perhaps only because the answer was too large.
            for question in questions:
                self._send([question])
            return
        begin = 0
        for question in questions:
            end = begin + len(question.keys)
            if not question.answer.done():
                question.answer.set_result({**content, "results": results[begin:end]})
            begin = end

    def close(self) -> None:
        """End the connection. Look-ups under way raise Disconnected."""
        self._finish(Disconnected("the connection was closed"))

    # --- called by asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Keep the transport. Called by asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take what the server sent. Called by asyncio."""
        self._decoder.feed(data)
        try:
            while (message := self._decoder.next()) is not None:
                if message.kind is MessageKind.REFUSED:
                    raise ProtocolError(f"the server refused: {message.content.get('reason')}")
                if message.kind is MessageKind.WELCOME:
                    if not self._welcome.done():
                        self._welcome.set_result(None)
                    continue
                questions = self._waiting.get(message.number)
                if questions is not None:
                    self._take(questions, message.content)
                    self._waiting.pop(message.number, None)
            self._send_unsent()
        except ProtocolError as problem:
            self._finish(Disconnected(str(problem)))

    def connection_lost(self, problem: Exception | None) -> None:
        """Fail all look-ups under way. Called by asyncio."""
        self._finish(Disconnected(f"the connection to the slot is lost ({problem})"))

    def _finish(self, end: Disconnected) -> None:
        if self._end is None:
            self._end = end
            if self._transport is not None:
                self._transport.close()
        if not self._welcome.done():
            self._welcome.set_exception(end)
        for question in itertools.chain(self._unsent, *self._waiting.values()):
            question.fail(end)
