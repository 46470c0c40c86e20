"""A client's connection to a slot: what goes out together, and that everybody gets the own answer (O6)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from millpond.queryable.connection import Disconnected, SlotConnection
from millpond.queryable.protocol import (
    MAX_REQUEST_BYTES,
    Decoder,
    Message,
    MessageKind,
    Status,
    encode,
)

Respond = Callable[[Message], dict[str, Any] | None]


class Server:
    """Speaks the protocol over TCP. Questions are held back until `answering` is set."""

    def __init__(self, respond: Respond | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.heard = asyncio.Event()
        self.answering = asyncio.Event()
        self.ended = asyncio.Event()
        self._respond = respond or doubled

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder(MAX_REQUEST_BYTES)
        while data := await reader.read(1 << 16):
            decoder.feed(data)
            while (message := decoder.next()) is not None:
                if message.kind is MessageKind.HELLO:
                    writer.write(encode(MessageKind.WELCOME, message.number, {}))
                    continue
                self.asked.append(message.content)
                self.heard.set()
                await self.answering.wait()
                answer = self._respond(message)
                if answer is not None:
                    writer.write(encode(MessageKind.ANSWER, message.number, answer))
        writer.close()
        with contextlib.suppress(OSError):  # whoever asked is gone
            await writer.wait_closed()
        self.ended.set()


def doubled(message: Message) -> dict[str, Any]:
    return {"epoch": 1, "results": [[Status.FOUND, 2 * key] for key in message.content["keys"]]}


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[SlotConnection]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    connection = await SlotConnection.open({"host": host, "port": port, "token": "x"}, 10)
    try:
        yield connection
    finally:
        server.answering.set()
        connection.close()
        listener.close()
        await server.ended.wait()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())


def look_up(
    connection: SlotConnection, *keys: Any, state: str = "s", **more: Any
) -> asyncio.Task[Any]:
    return asyncio.ensure_future(connection.get({"state": state, "keys": list(keys), **more}))


async def values(task: asyncio.Task[Any]) -> list[Any]:
    return [what for _, what in (await task)["results"]]


def test_a_single_question_goes_out_at_once_and_as_it_is() -> None:
    async def test() -> None:
        server = Server()
        server.answering.set()
        async with connected(server) as connection:
            assert await values(look_up(connection, 1, 2)) == [2, 4]
            assert server.asked == [{"state": "s", "keys": [1, 2]}]

    run(test)


def test_while_answers_are_under_way_questions_gather_and_everybody_gets_the_own_answer() -> None:
    async def test() -> None:
        server = Server()
        async with connected(server) as connection:
            first = look_up(connection, 1)
            await server.heard.wait()
            second = look_up(connection, 2)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            rest = [look_up(connection, key, key + 100) for key in range(3, 50)]
            of_entry = [look_up(connection, key, entry="e") for key in (7, 8)]
            elsewhere = look_up(connection, 9, state="t")
            await asyncio.sleep(0)
            server.answering.set()
            assert await values(first) == [2]
            assert await values(second) == [4]
            for key, task in enumerate(rest, 3):
                assert await values(task) == [2 * key, 2 * key + 200]
            assert [await values(task) for task in of_entry] == [[14], [16]]
            assert await values(elsewhere) == [18]
            assert server.asked[:2] == [{"state": "s", "keys": [1]}, {"state": "s", "keys": [2]}]
            together = [(own["state"], own.get("entry"), len(own["keys"])) for own in server.asked]
            assert together[2:] == [("s", None, 94), ("s", "e", 2), ("t", None, 1)]

    run(test)


def test_what_fails_together_is_asked_apart() -> None:
    """Perhaps only the answers were too large together; and what is wrong with one key is not the others'."""

    def respond(message: Message) -> dict[str, Any]:
        keys = message.content["keys"]
        if len(keys) > 1 or keys == [13]:
            return {"epoch": 1, "results": [[Status.FAILED, "too much"]] * len(keys)}
        return doubled(message)

    async def test() -> None:
        server = Server(respond)
        async with connected(server) as connection:
            tasks = [look_up(connection, key) for key in (12, 13, 14)]
            server.answering.set()
            assert [await values(task) for task in tasks] == [[24], ["too much"], [28]]
            assert [own["keys"] for own in server.asked] == [[12, 13, 14], [12], [13], [14]]

    run(test)


def test_a_question_that_is_too_large_is_refused_and_harms_no_other() -> None:
    async def test() -> None:
        server = Server()
        server.answering.set()
        async with connected(server) as connection:
            small = look_up(connection, 1)
            large = look_up(connection, "x" * MAX_REQUEST_BYTES)
            with pytest.raises(ValueError, match="at most"):
                await large
            assert await values(small) == [2]

    run(test)


def test_who_no_longer_waits_does_not_keep_others_waiting() -> None:
    """A server that does not answer: the next question goes out when those before it are given up."""
    silent = {1, 2}

    def respond(message: Message) -> dict[str, Any] | None:
        return None if silent & set(message.content["keys"]) else doubled(message)

    async def test() -> None:
        server = Server(respond)
        server.answering.set()
        async with connected(server) as connection:
            given_up = []
            for key in (1, 2):
                server.heard.clear()
                given_up.append(look_up(connection, key))
                await server.heard.wait()
            waiting = look_up(connection, 3)
            await asyncio.sleep(0.01)
            assert len(server.asked) == 2
            given_up[0].cancel()
            assert await values(waiting) == [6]
            given_up[1].cancel()

    run(test)


def test_when_the_server_is_gone_all_who_wait_are_told() -> None:
    async def test() -> None:
        server = Server()
        async with connected(server) as connection:
            tasks = [look_up(connection, 1)]
            await server.heard.wait()
            tasks.append(look_up(connection, 2))
            await asyncio.sleep(0)
            tasks.append(look_up(connection, 3))
            await asyncio.sleep(0)
            connection.close()
            for task in tasks:
                with pytest.raises(Disconnected):
                    await task
            with pytest.raises(Disconnected):
                await connection.get({"state": "s", "keys": [4]})

    run(test)


@pytest.mark.parametrize("answer", [{}, {"results": 1}, {"results": []}, {"results": [[0, 1]] * 3}])
def test_an_answer_that_is_none_ends_the_connection(answer: dict[str, Any]) -> None:
    async def test() -> None:
        server = Server(lambda _: answer)
        server.answering.set()
        async with connected(server) as connection:
            with pytest.raises(Disconnected, match="not an answer"):
                await look_up(connection, 1, 2)
            assert not connection.is_open

    run(test)


def test_client_of_look_ups_loads_neither_spark_nor_arrow() -> None:
    """O6: a process that only asks does not pay for what runs jobs."""
    show = (
        "import sys, millpond.queryable.async_client;"
        "print([m for m in ('pyarrow', 'pyspark', 'cloudpickle') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
