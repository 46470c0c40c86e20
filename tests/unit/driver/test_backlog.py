"""What sources have that was not handed out (E9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.datastream import SourceFunction
from millpond.datastream.connectors.base import Source, SplitEnumerator
from millpond.datastream.connectors.collection import (
    CollectionSource,
    NumberSequenceSource,
)
from millpond.datastream.connectors.file_system import FileSource, StreamFormat
from millpond.datastream.connectors.function_source import FunctionSource
from millpond.datastream.connectors.hybrid_source import HybridSource
from millpond.datastream.connectors.kafka.offsets import (
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millpond.datastream.connectors.kafka.source import _KafkaEnumerator
from millpond.errors import JobExecutionError


def started(source: Source, splits: int = 2) -> SplitEnumerator:
    context: Any = None
    enumerator = source.create_enumerator(splits, context)
    enumerator.start()
    return enumerator


def test_source_that_cannot_tell_says_so() -> None:
    class Unknown(SplitEnumerator):
        def split_count(self) -> int:
            return 1

        def poll(self, max_records: int) -> list[Any]:
            return []

        def position(self) -> None:
            return None

        def restore(self, position: Any) -> None:
            """Nothing to restore."""

        def ended(self) -> list[bool]:
            return [False]

    assert Unknown().backlog() is None


def test_collection_knows_what_is_left() -> None:
    enumerator = started(CollectionSource(list(range(10))))
    assert enumerator.backlog() == 10
    enumerator.poll(4)
    assert enumerator.backlog() == 6
    enumerator.restore(9)
    assert enumerator.backlog() == 1
    enumerator.poll(4)
    assert enumerator.backlog() == 0


def test_numbers_are_counted_over_all_splits() -> None:
    enumerator = started(NumberSequenceSource(1, 11))
    assert enumerator.backlog() == 11
    enumerator.poll(4)
    assert enumerator.backlog() == 7


def files(folder: Path, *counts: int) -> FileSource:
    folder.mkdir()
    for number, count in enumerate(counts):
        (folder / f"{number}.txt").write_text("0123456789\n" * count)
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder)).build()


def test_files_estimate_by_the_length_of_their_first_lines(tmp_path: Path) -> None:
    enumerator = started(files(tmp_path / "in", 1000, 500))
    assert enumerator.backlog() is None, "nobody has looked yet"
    enumerator.poll(100)
    assert enumerator.backlog() == pytest.approx(1400, abs=5)
    while enumerator.poll(400):
        pass
    assert enumerator.backlog() == 0


def test_lines_of_unknown_length_cannot_be_counted(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 300_000)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()
    enumerator = started(source)
    enumerator.poll(10)
    assert enumerator.backlog() is None


def test_hybrid_source_tells_of_the_one_it_reads(tmp_path: Path) -> None:
    builder = HybridSource.builder(files(tmp_path / "past", 10))
    enumerator = started(builder.add_source(CollectionSource([1, 2, 3])).build())
    enumerator.poll(4)
    assert enumerator.backlog() == pytest.approx(6, abs=1)
    while enumerator.backlog() != 3:
        enumerator.poll(4)
    enumerator.poll(2)
    assert enumerator.backlog() == 1


class Emit(SourceFunction):
    def run(self, ctx: Any) -> None:
        for number in range(5):
            ctx.collect(number)

    def cancel(self) -> None:
        """It ends by itself."""


def test_function_has_what_it_has_emitted() -> None:
    context: Any = None
    enumerator = FunctionSource(Emit()).create_enumerator(1, context)
    assert enumerator.backlog() is None
    enumerator.start()
    enumerator._done.wait()  # type: ignore[attr-defined]
    assert enumerator.backlog() == 5
    enumerator.poll(3)
    assert enumerator.backlog() == 2
    enumerator.close()


class Topic:
    """Stands in for Kafka: offsets that grow, and that can be away."""

    def __init__(self, *ends: int) -> None:
        self.offsets = {KafkaTopicPartition("t", i): end for i, end in enumerate(ends)}
        self.is_away = False
        self.asked = 0

    def partitions(self, topics: list[str]) -> list[KafkaTopicPartition]:
        return list(self.offsets)

    def resolve(self, wanted: Any, partitions: list[KafkaTopicPartition]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: list[KafkaTopicPartition]) -> dict[Any, int]:
        self.asked += 1
        if self.is_away:
            raise JobExecutionError("away")
        return {own: self.offsets[own] for own in partitions}


def test_topic_has_what_lies_between_position_and_end() -> None:
    topic: Any = Topic(100, 50)
    earliest = KafkaOffsetsInitializer.earliest()
    enumerator = _KafkaEnumerator(topic, ["t"], [], earliest, None, 300_000)
    enumerator.start()
    assert enumerator.backlog() is None
    enumerator.poll(40)
    assert enumerator.backlog() == 80 + 30
    topic.offsets[KafkaTopicPartition("t", 0)] = 1000
    assert enumerator.backlog() == 110, "as the last poll has found it"
    assert topic.asked == 1, "nobody is asked for it"
    enumerator.poll(40)
    assert enumerator.backlog() == 960 + 10
    topic.is_away = True
    enumerator.poll(40)
    assert enumerator.backlog() == 970
