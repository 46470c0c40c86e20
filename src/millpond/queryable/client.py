"""Looks up state of running jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.common.job import CompletableFuture
from millpond.common.job_id import JobID
from millpond.common.typeinfo import TypeInformation
from millpond.queryable.async_client import AsyncQueryableStateClient

if TYPE_CHECKING:
    from millpond.datastream.state import State, StateDescriptor

T = TypeVar("T")


class QueryableStateClient:
    """The same as `AsyncQueryableStateClient`, for programs without asyncio. May be used by any number of
    threads; `get_async` has many look-ups under way at once. Close it, or use it in a `with` statement."""

    def __init__(self, host: str = "127.0.0.1", port: int = 8081, token: str | None = None) -> None:
        self._begin(AsyncQueryableStateClient(host, port, token))

    @classmethod
    def for_folder(cls, path: str | Path) -> QueryableStateClient:
        """Return a client for programs that can read the job's folder: it needs no dispatcher, and ignores
        job ids."""
        client = cls.__new__(cls)
        client._begin(AsyncQueryableStateClient.for_folder(path))
        return client

    def _begin(self, client: AsyncQueryableStateClient) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="look-ups", daemon=True)
        self._thread.start()

    def get(
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
        return self.get_async(job_id, name, key, entry, timeout_s).result()

    def get_async(
        self,
        job_id: JobID | str,
        name: str,
        key: object,
        entry: object = None,
        timeout_s: float = 5.0,
    ) -> Future[Any]:
        """Return a future of what `get` returns."""
        return self._submit(self._client.get(job_id, name, key, entry, timeout_s))

    def get_many(
        self,
        job_id: JobID | str,
        name: str,
        keys: Iterable[Any],
        entry: object = None,
        timeout_s: float = 5.0,
    ) -> dict[Any, Any]:
        """Return what `get` returns for many keys: key -> value, without the keys that have none."""
        return self._submit(self._client.get_many(job_id, name, keys, entry, timeout_s)).result()

    def get_kv_state(
        self,
        job_id: JobID | str,
        queryable_state_name: str,
        key: object,
        key_type_info: TypeInformation | None,
        state_descriptor: StateDescriptor,
    ) -> CompletableFuture[State]:
        """Return, like Flink's client, a state that can only be read, with values of the descriptor's
        types."""
        call = self._client.get_kv_state(
            job_id, queryable_state_name, key, key_type_info, state_descriptor
        )
        return CompletableFuture(self._submit(call))

    def close(self) -> None:
        """Close all connections, and end the thread."""
        if self._thread.is_alive():
            self._submit(self._client.close()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    shutdown_and_wait = close

    def __enter__(self) -> QueryableStateClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _submit(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)
