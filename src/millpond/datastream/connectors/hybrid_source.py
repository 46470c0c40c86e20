"""Several sources, one after the other, such as files of the past and then Kafka (E13). With PyFlink's
names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext
from millpond.errors import ProgramError
from millpond.missing import module_getattr


class HybridSource(Source):
    """Reads several sources, each after the one before it has ended. Only the last one may be endless."""

    def __init__(self, sources: list[Source]) -> None:
        for source in sources[:-1]:
            if source.endless:
                raise ProgramError(
                    f"HybridSource: {type(source).__name__} never ends, so the sources after it would never "
                    "be read. Only the last source may be endless."
                )
        self._sources = sources
        self.bounded = all(source.bounded for source in sources)
        self.endless = sources[-1].endless

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Return a builder that begins with this source."""
        return HybridSourceBuilder(first_source)

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _InTurn([source.create_enumerator(parallelism, context) for source in self._sources])

    def read(self, arguments: tuple[int, Any]) -> Iterator[tuple[Any, int | None]]:
        number, inner = arguments
        return self._sources[number].read(inner)

    def read_many(self, arguments: tuple[int, Any]) -> Iterator[tuple[Any, Any]]:
        number, inner = arguments
        return self._sources[number].read_many(inner)

    def rest(self, arguments: tuple[int, Any], done: int) -> tuple[Any, int]:
        number, inner = arguments
        left, skipped = self._sources[number].rest(inner, done)
        return (number, left), skipped


class HybridSourceBuilder:
    """Builds a HybridSource."""

    def __init__(self, first_source: Source) -> None:
        self._sources = [first_source]

    def add_source(self, source: Source) -> HybridSourceBuilder:
        """Read this source after those before it."""
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Return the source; raise ProgramError if a source other than the last one never ends."""
        return HybridSource(self._sources)


class _InTurn(SplitEnumerator):
    """Hands out the splits of the first source, then those of the next as soon as that one has ended."""

    def __init__(self, enumerators: list[SplitEnumerator]) -> None:
        self._all = enumerators
        self._begun = 1
        super().__init__()
        self._positions: list[Any] = []

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in ("available", "stops_at_end", "checkpoint", "open_lists"):
            for enumerator in self._all:
                setattr(enumerator, name, value)

    @property
    def _current(self) -> SplitEnumerator:
        return self._all[self._begun - 1]

    def start(self) -> None:
        """Start the current source only: one that has ended stays ended, even if it would find more now.

        Its splits keep their numbers, and so do those of the sources after it.
        """
        self._current.start()
        self._go_on()

    def _go_on(self) -> None:
        while self._begun < len(self._all) and all(self._current.ended()):
            self._begun += 1
            self._current.start()

    def split_count(self) -> int:
        return sum(enumerator.split_count() for enumerator in self._all[: self._begun])

    def poll(self, max_records: int) -> list[SplitWork]:
        number, current = self._begun - 1, self._current
        before = sum(enumerator.split_count() for enumerator in self._all[:number])
        current.paused = {split - before for split in self.paused if split >= before}
        works = [
            SplitWork(before + work.split, (number, work.arguments))
            for work in current.poll(max_records)
        ]
        self._go_on()
        return works

    def position(self) -> list[Any]:
        return [enumerator.position() for enumerator in self._all[: self._begun]]

    def restore(self, position: list[Any]) -> None:
        self._begun = len(position)
        for enumerator, at in zip(self._all, position, strict=False):
            enumerator.restore(at)

    def ended(self) -> list[bool]:
        before = sum(enumerator.split_count() for enumerator in self._all[: self._begun - 1])
        return [True] * before + self._current.ended()

    def caught_up(self) -> bool:
        return self._begun == len(self._all) and self._current.caught_up()

    def backlog(self) -> int | None:
        """Return the backlog of the current source; those after it have not been looked at."""
        return self._current.backlog()

    def next_poll_in_ms(self) -> int | None:
        return self._current.next_poll_in_ms()

    def committed(self, epoch: int) -> None:
        for enumerator in self._all[: self._begun]:
            enumerator.committed(epoch)

    def close(self) -> None:
        for enumerator in self._all:
            enumerator.close()


__getattr__ = module_getattr(__name__)
