"""A read that was cut, of a source that has lost records meanwhile, as a compacted Kafka topic does (E9)."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.common import WatermarkStrategy
from millpond.datastream import RuntimeContext
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.testing import direct_environment
from tests.unit.engine.test_split_pass import batches_of, slowly

COUNT = 40
LOST = 5
reads: list[int] = []  # the first offset that each read could give


class Compacted(Source):
    """Offsets are records. Once something was read, the first few are compacted away."""

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _OneRange()

    def read(self, arguments: tuple[int, int]) -> Iterator[tuple[int, int | None]]:
        start, end = arguments
        first = max(start, LOST if reads else 0)
        reads.append(first)
        return ((offset, None) for offset in range(first, end))

    def rest(self, arguments: tuple[int, int], done: int) -> tuple[tuple[int, int], int]:
        return (reads[-1] + done, arguments[1]), 0


class _OneRange(SplitEnumerator):
    def __init__(self) -> None:
        super().__init__()
        self._is_handed_out = False

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        works = [] if self._is_handed_out else [SplitWork(0, (0, COUNT))]
        self._is_handed_out = True
        return works

    def position(self) -> bool:
        return self._is_handed_out

    def restore(self, position: bool) -> None:
        self._is_handed_out = position

    def ended(self) -> list[bool]:
        return [self._is_handed_out]


def test_records_that_are_still_there_are_all_read() -> None:
    reads.clear()
    source = Compacted()
    numbers = direct_environment().from_source(source, WatermarkStrategy.no_watermarks(), "topic")
    batches = batches_of(numbers.map(slowly))
    assert len(reads) > 1, "the read was cut"
    assert [number for batch in batches for number in batch] == list(range(COUNT))
