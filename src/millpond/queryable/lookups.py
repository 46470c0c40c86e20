"""Looks up keys, wherever they are: finds slots, keeps connections, asks again while a job restarts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any

from millpond.errors import QueryableStateError, RetryLaterError
from millpond.queryable.connection import Disconnected, SlotConnection
from millpond.queryable.locations import partition_of
from millpond.queryable.protocol import Status

Location = dict[str, Any]
# Returns where a state is, given the partitions whose servers could not be reached.
Locate = Callable[[Iterable[int]], Awaitable[Location]]
# Returns the JSON of a key, and something with the same key group, given the declared type of keys.
Encode = Callable[[Any, Any], tuple[Any, Any]]
NOT_FOUND = object()
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.2
_CONNECT_S = 2.0
_LEAST_WAIT_S = 0.5  # for an answer, even if the caller asks only once
_KEYS_AT_ONCE = 500


class Lookups:
    """The look-ups of one event loop."""

    def __init__(self) -> None:
        self._locations: dict[Hashable, Location] = {}
        self._locating: dict[Hashable, asyncio.Lock] = {}
        self._connections: dict[tuple[str, int, str], asyncio.Task[SlotConnection]] = {}

    async def get(
        self,
        state: Hashable,
        locate: Locate,
        keys: list[Any],
        encode: Encode,
        entry: Callable[[Any], Any] | None,
        timeout_s: float,
    ) -> list[Any]:
        """Return what each key has, as JSON, or NOT_FOUND. `state` names job and state; `entry` makes the
        JSON of a map's entry, given its declared type. Raises RetryLaterError if there is no answer within
        `timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        found: dict[int, Any] = {}
        stale: Location | None = None
        lost: set[int] = set()
        pause_s = _FIRST_PAUSE_S
        while True:
            round_ = _Round()
            try:
                location = await self._location(state, locate, stale, lost)
                waiting = [number for number in range(len(keys)) if number not in found]
                await self._ask_all(location, keys, encode, entry, waiting, round_, deadline_s)
                found |= round_.found
                stale, lost = (location if round_.is_stale else None), round_.lost
            except RetryLaterError as problem:
                round_.reason = str(problem)
            if len(found) == len(keys):
                return [found[number] for number in range(len(keys))]
            if loop.time() + pause_s > deadline_s:
                raise RetryLaterError(round_.reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _ask_all(
        self,
        location: Location,
        keys: list[Any],
        encode: Encode,
        entry: Callable[[Any], Any] | None,
        waiting: list[int],
        round_: _Round,
        deadline_s: float,
    ) -> None:
        """Ask each slot for the keys that it has, all slots at once."""
        state = location["state"]
        base: dict[str, Any] = {"state": location["name"]}
        if entry is not None:
            base["entry"] = entry(state["entry-type"])
        by_partition: dict[int, list[tuple[int, Any]]] = {}
        for number in waiting:
            data, like_key = encode(keys[number], state["key-type"])
            partition = partition_of(location, like_key)
            by_partition.setdefault(partition, []).append((number, data))
        calls = [
            self._ask(location, partition, base, asked[i : i + _KEYS_AT_ONCE], round_, deadline_s)
            for partition, asked in by_partition.items()
            for i in range(0, len(asked), _KEYS_AT_ONCE)
        ]
        if len(calls) == 1:
            await calls[0]
        else:
            await asyncio.gather(*calls)

    async def _ask(
        self,
        location: Location,
        partition: int,
        base: dict[str, Any],
        keys: list[tuple[int, Any]],
        round_: _Round,
        deadline_s: float,
    ) -> None:
        address = location["addresses"].get(str(partition))
        if address is None:
            round_.is_stale = True
            round_.reason = (
                f"The slot of partition {partition} is gone, or has not loaded its state yet: the job "
                "restarts it. Try again."
            )
            return
        loop = asyncio.get_running_loop()
        try:
            connection = await self._connection(address)
            async with asyncio.timeout(max(deadline_s - loop.time(), _LEAST_WAIT_S)):
                answer = await connection.get({**base, "keys": [data for _, data in keys]})
        except (Disconnected, TimeoutError) as problem:
            round_.is_stale = True
            round_.lost.add(partition)
            round_.reason = (
                f"The slot of partition {partition} does not answer: {problem}. If it is gone, the job "
                "restarts it. Try again."
            )
            return
        except ValueError as problem:
            raise QueryableStateError(str(problem)) from None
        for (number, _), (status, what) in zip(keys, answer["results"], strict=False):
            round_.take(number, status, what)

    async def _location(
        self, state: Hashable, locate: Locate, stale: Location | None, lost: set[int]
    ) -> Location:
        """Return the location from memory, unless it is `stale`. It is asked for once, however many wait
        for it."""
        known = self._locations.get(state)
        if known is not None and known is not stale:
            return known
        async with self._locating.setdefault(state, asyncio.Lock()):
            known = self._locations.get(state)
            if known is None or known is stale:
                self._locations.pop(state, None)
                known = await locate(lost)
                self._locations[state] = known
            return known

    async def _connection(self, address: dict[str, Any]) -> SlotConnection:
        key = (address["host"], address["port"], address["token"])
        opening = self._connections.get(key)
        if opening is None:
            self._drop_ended()
            opening = asyncio.ensure_future(SlotConnection.open(address, _CONNECT_S))
            self._connections[key] = opening
        try:
            connection = await asyncio.shield(opening)
            if connection.is_open:
                return connection
            raise Disconnected("the connection to the slot is lost")
        except Disconnected:
            if self._connections.get(key) is opening:
                del self._connections[key]
            raise

    def _drop_ended(self) -> None:
        """Forget connections to slots that are gone."""
        for key, opening in list(self._connections.items()):
            if opening.done() and (
                opening.cancelled() or opening.exception() or not opening.result().is_open
            ):
                del self._connections[key]

    def forget(self, state: Hashable) -> None:
        """Forget where a state is."""
        self._locations.pop(state, None)
        self._locating.pop(state, None)

    async def close(self) -> None:
        """Close all connections."""
        openings, self._connections = list(self._connections.values()), {}
        for opening in openings:
            with contextlib.suppress(Disconnected, asyncio.CancelledError):
                (await opening).close()
        await asyncio.sleep(0)  # transports close in the next turn of the loop


class _Round:
    """What came of asking all slots once."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}
        self.is_stale = False  # True if the location is out of date
        self.lost: set[int] = set()
        self.reason = "There is no answer yet. Try again."

    def take(self, number: int, status: int, what: object) -> None:
        if status == Status.FOUND:
            self.found[number] = what
        elif status == Status.NOT_FOUND:
            self.found[number] = NOT_FOUND
        elif status == Status.RETRY:
            self.reason = f"There is no answer yet: {what}. Try again."
        elif status == Status.ELSEWHERE:
            self.is_stale = True
            self.reason = f"The state is moving to another slot: {what}. Try again."
        elif status == Status.UNKNOWN_STATE:
            # The job has the state; the slot has not opened the function yet.
            self.is_stale = True
            self.reason = f"The slot has not loaded the state yet: {what}. Try again."
        else:
            raise QueryableStateError(f"The look-up failed: {what}.")
