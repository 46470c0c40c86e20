"""Look-ups on behalf of others: the dispatcher answers `GET /jobs/:jid/state/:name/:key` with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.errors import (
    QueryableStateError,
    RetryLaterError,
    UnknownKeyError,
    UnknownStateError,
)
from millpond.queryable.json_codec import json_of_text, key_from_json
from millpond.queryable.locations import describe
from millpond.queryable.lookups import NOT_FOUND, Location, Lookups

if TYPE_CHECKING:
    from millpond.datastream.formats.avro_schemas import Schema


class StateProxy:
    """Remembers where state is, and keeps connections to slots, job by job. Belongs to one event loop."""

    def __init__(self, timeout_s: float = 2.0) -> None:
        self._timeout_s = timeout_s
        self._lookups = Lookups()

    async def get(
        self, job_folder: Path, name: str, key_json: str, entry_json: str | None = None
    ) -> dict[str, Any]:
        """Return {"found": true, "value": ...} or {"found": false}. A key is text as in an address, see
        `json_of_text`. Raises QueryableStateError; `status_of` tells which HTTP status that is."""

        async def locate(lost: Iterable[int]) -> Location:
            return await asyncio.to_thread(describe, job_folder, name, list(lost))

        def encode(text: str, schema: Schema | None) -> tuple[Any, Any]:
            data = json_of_text(text, schema)
            # Without classes: those of the job are not there, and must not be loaded.
            return data, key_from_json(data, schema, classes=False)

        (value,) = await self._lookups.get(
            (str(job_folder), name),
            locate,
            [key_json],
            encode,
            None if entry_json is None else lambda schema: json_of_text(entry_json, schema),
            self._timeout_s,
        )
        return {"found": False} if value is NOT_FOUND else {"found": True, "value": value}

    async def close(self) -> None:
        """Close all connections."""
        await self._lookups.close()


def status_of(error: QueryableStateError) -> int:
    """Return the HTTP status of an error: 404 there is none, 409 ask again, 400 what was asked for is
    wrong."""
    if isinstance(error, (UnknownStateError, UnknownKeyError)):
        return 404
    return 409 if isinstance(error, RetryLaterError) else 400
