"""Looks up state of running jobs, for programs with asyncio. `client.py` has the same for others."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.common.job_id import JobID
from millpond.common.json_values import JsonValue
from millpond.common.typeinfo import TypeInformation
from millpond.errors import (
    QueryableStateError,
    RetryLaterError,
    UnknownKeyError,
    UnknownStateError,
)
from millpond.queryable.json_codec import key_to_json, value_from_json
from millpond.queryable.locations import describe
from millpond.queryable.lookups import NOT_FOUND, Location, Lookups

if TYPE_CHECKING:
    from millpond.datastream.formats.avro_schemas import Schema
    from millpond.datastream.state import State, StateDescriptor

_HTTP_S = 5.0
_MAX_LOCATION_BYTES = 16 << 20


class AsyncQueryableStateClient:
    """Asks the dispatcher at host and port where state is, once, and then the slots themselves. `host` may
    be an address with http:// or https://; `token` is the dispatcher's, if it needs one.

    Values come as JSON has them (`json_codec.py`): lists for tuples, dictionaries for rows and
    dataclasses.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 8081, token: str | None = None) -> None:
        self._base = f"{host if '://' in host else f'http://{host}'}:{port}"
        self._token = token
        self._folder: Path | None = None
        self._lookups = Lookups()

    @classmethod
    def for_folder(cls, path: str | Path) -> AsyncQueryableStateClient:
        """Return a client for programs that can read the job's folder: it needs no dispatcher, and ignores
        job ids."""
        client = cls()
        client._folder = Path(path)
        return client

    async def get(
        self,
        job_id: JobID | str,
        name: str,
        key: object,
        entry: object = None,
        timeout_s: float = 5.0,
    ) -> Any:
        """Return what committed batches have left for a key: a value, a list, a dictionary; with `entry`,
        one entry of a map.

        Raises UnknownKeyError if there is nothing, UnknownStateError, or RetryLaterError if the job cannot
        answer within `timeout_s` (0: ask once).
        """
        data = await self._get_json(job_id, name, key, entry, timeout_s)
        return value_from_json(data)

    async def get_many(
        self,
        job_id: JobID | str,
        name: str,
        keys: Iterable[Any],
        entry: object = None,
        timeout_s: float = 5.0,
    ) -> dict[Any, Any]:
        """Return what `get` returns for many keys: key -> value, without the keys that have none. All that
        one slot answers in one message is from the same batch."""
        asked = list(dict.fromkeys(keys))
        found = await self._look_up(job_id, name, asked, entry, timeout_s)
        return {
            key: value_from_json(data)
            for key, data in zip(asked, found, strict=True)
            if data is not NOT_FOUND
        }

    async def get_kv_state(
        self,
        job_id: JobID | str,
        queryable_state_name: str,
        key: object,
        key_type_info: TypeInformation | None,
        state_descriptor: StateDescriptor,
    ) -> State:
        """Return, like Flink's client, a state that can only be read, with values of the descriptor's
        types."""
        from millpond.queryable.read_only_states import read_only_state

        data = await self._get_json(job_id, queryable_state_name, key, None, 5.0)
        return read_only_state(state_descriptor, data)

    async def close(self) -> None:
        """Close all connections."""
        await self._lookups.close()

    async def __aenter__(self) -> AsyncQueryableStateClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _get_json(
        self, job_id: JobID | str, name: str, key: object, entry: object, timeout_s: float
    ) -> JsonValue:
        found: list[JsonValue] = await self._look_up(job_id, name, [key], entry, timeout_s)
        data = found[0]
        if data is NOT_FOUND:
            what = f"key {key!r}" if entry is None else f"entry {entry!r} of key {key!r}"
            raise UnknownKeyError(f"The queryable state '{name}' has nothing for {what}.")
        return data

    async def _look_up(
        self, job_id: JobID | str, name: str, keys: list[Any], entry: object, timeout_s: float
    ) -> list[Any]:
        async def locate(lost: Iterable[int]) -> Location:
            return await asyncio.to_thread(self._locate, str(job_id), name, list(lost))

        def entry_json(schema: Schema | None) -> JsonValue:
            return key_to_json(entry, schema)

        return await self._lookups.get(
            (str(job_id), name),
            locate,
            keys,
            lambda key, schema: (key_to_json(key, schema), key),
            None if entry is None else entry_json,
            timeout_s,
        )

    def _locate(self, job_id: str, name: str, lost: list[int]) -> Location:
        if self._folder is not None:
            return describe(self._folder, name, lost)
        path = "/".join(
            urllib.parse.quote(part, safe="") for part in ("jobs", job_id, "state", name)
        )
        query = "?" + urllib.parse.urlencode({"lost": ",".join(map(str, lost))}) if lost else ""
        request = urllib.request.Request(f"{self._base}/{path}/location{query}")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_HTTP_S) as answer:
                location: Location = json.loads(answer.read(_MAX_LOCATION_BYTES))
                return location
        except urllib.error.HTTPError as problem:
            raise _error_of(problem) from None
        except (OSError, ValueError) as problem:
            text = f"The dispatcher at {self._base} does not answer: {problem}. Try again."
            raise RetryLaterError(text) from None


def _error_of(problem: urllib.error.HTTPError) -> QueryableStateError:
    with problem:
        body = problem.read(64 << 10)
    try:
        errors = json.loads(body)["errors"]
        text = errors[0] if isinstance(errors, list) else str(errors)
    except (ValueError, KeyError, IndexError, TypeError):
        text = f"The dispatcher answered {problem.code} {problem.reason}."
    kinds = {404: UnknownStateError, 409: RetryLaterError, 503: RetryLaterError}
    return kinds.get(problem.code, QueryableStateError)(text)
