"""The log of a partition: a model of rows, whatever happens to batches and to the processes that write."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from millpond.core.storage import FileStorage, MemoryStorage, Storage
from millpond.errors import CorruptDataError, StorageError
from millpond.state import partition_log
from millpond.state.partition_log import EMPTY, LogPosition, PartitionLog
from tests.unit.core.test_storage import write_golden

GOLDEN = Path(__file__).parents[1] / "golden" / "log-segment.v1.bin"
FOLDER = "log/1/0"
Rows = dict[tuple[int, int], bytes]  # (label, row) -> content; row -1 is the head


def content(log: PartitionLog, model: Rows) -> Rows:
    """What the log says of the rows in the model."""
    found = {}
    for label, number in model:
        row = log.read_head(label) if number < 0 else log.read_row(label, number)
        assert row is not None
        found[label, number] = row
    return found


def batch(log: PartitionLog, model: Rows, chance: random.Random) -> Rows:
    """A batch that changes a few labels; the model after it."""
    after = dict(model)
    for label in chance.sample(range(6), chance.randint(0, 3)):
        own = [number for known, number in after if known == label and number >= 0]
        for number in chance.sample(own, chance.randint(0, len(own))):
            log.of(label).delete_row(number)
            del after[label, number]
        for number in range(chance.randint(0, 4)):
            row = chance.randbytes(chance.randint(0, 200))
            log.of(label).write_row(number, row)
            after[label, number] = row
        head = chance.randbytes(20)
        log.of(label).write_head(head)
        after[label, -1] = head
    return after


@pytest.mark.parametrize("seed", range(60))
def test_log_is_what_the_batches_that_count_have_made_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E41, E42: batches are undone, processes die and are replaced, come back as zombies, space is freed."""
    monkeypatch.setattr(partition_log, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(partition_log, "MIN_BYTES", 1000)
    monkeypatch.setattr(partition_log, "_MOVED_BYTES", 100)
    monkeypatch.setattr(partition_log, "_READ_AT_ONCE", 50 * (seed % 10))
    monkeypatch.setattr(partition_log, "MOST_PENDING", (0, 150, 1 << 20)[seed % 3])
    chance = random.Random(seed)
    storage: Storage = FileStorage(tmp_path) if seed % 2 else MemoryStorage()
    writers = [PartitionLog(storage, FOLDER, f"1-{number}") for number in range(2)]
    position: LogPosition = EMPTY
    model: Rows = {}
    for _ in range(150):
        fate, log = chance.random(), chance.choice(writers)
        log.go_to(position)
        assert content(log, model) == model
        assert log.labels() == {label for label, number in model if number < 0}
        after = batch(log, model, chance)
        if fate < 0.1:
            continue  # it failed before anything was written
        written = log.write()
        if fate < 0.25:
            continue  # it did not count
        for name in {name for name, _ in position} - {name for name, _ in written}:
            storage.delete(name)
        position, model = written, after
        if fate < 0.35:
            log.close()
            writers.remove(log)
            writers.append(PartitionLog(storage, FOLDER, f"2-{chance.randbytes(8).hex()}"))
    valid = sum(map(len, model.values()))
    used = sum(length for _, length in position)
    assert used < 3 * valid + 8 * 2000, "wasted space is freed"
    for name, length in position:
        assert len(storage.read_all(name)) >= length


def test_partition_that_moves_from_slot_to_slot_does_not_pile_up_segments() -> None:
    storage = MemoryStorage()
    writers = [PartitionLog(storage, FOLDER, name) for name in ("a", "b")]
    position: LogPosition = EMPTY
    for number in range(200):
        log = writers[number % 2]
        log.go_to(position)
        log.of(number % 50).write_head(b"%d" % number)
        position = log.write()
    assert len(position) <= partition_log.MOST_SEGMENTS + 2
    writers[0].go_to(position)
    assert [writers[0].read_head(label) for label in range(50)] == [
        b"%d" % n for n in range(150, 200)
    ]


def test_nothing_is_written_if_nothing_has_changed() -> None:
    storage = MemoryStorage()
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    assert log.write() == EMPTY
    assert storage.names(FOLDER) == []


def test_batch_is_one_record_whatever_it_changes() -> None:
    storage, appended = MemoryStorage(), []
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    log.of(1).write_head(b"head")
    position = log.write()
    assert log._log is not None
    append = log._log.append
    log._log.append = lambda pieces: appended.append(append(pieces))  # type: ignore[assignment, func-returns-value]
    log.go_to(position)
    for label in range(100):
        log.of(label).write_row(0, b"row")
    log.write()
    assert len(appended) == 1


def test_what_follows_a_batch_that_did_not_count_is_in_a_segment_of_its_own() -> None:
    storage = MemoryStorage()
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    log.of(0).write_head(b"counts")
    position = log.write()
    log.go_to(position)
    log.of(0).write_head(b"does not count")
    log.write()
    log.go_to(position)
    log.of(1).write_head(b"counts")
    position = log.write()
    assert len(position) == 2
    reader = PartitionLog(storage, FOLDER, "2")
    reader.go_to(position)
    assert (reader.read_head(0), reader.read_head(1)) == (b"counts", b"counts")


def test_failed_write_leaves_the_log_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    log.of(0).write_head(b"one")
    position = log.write()
    log.go_to(position)
    log.of(0).write_head(b"two")
    assert log._log is not None

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log._log, "append", full)
    with pytest.raises(OSError, match="No space left"):
        log.write()
    log.go_to(position)
    assert log.read_head(0) == b"one"
    log.of(0).write_head(b"three")
    assert log.write() != position


@pytest.mark.parametrize("rest", ["nothing", "zeros", "noise"])
def test_every_torn_end_of_a_segment_is_ignored(rest: str, tmp_path: Path) -> None:
    """E42: a slot that dies while it writes, or a power failure, can leave any part of the last record."""
    storage = FileStorage(tmp_path)
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    log.of(0).write_head(b"counts")
    log.of(0).write_row(0, b"row")
    position = log.write()
    log.go_to(position)
    log.of(0).write_head(b"torn")
    log.of(1).write_row(7, b"x" * 40)
    log.write()
    log.close()
    (segment,) = (tmp_path / FOLDER).iterdir()
    content, (_, counts) = segment.read_bytes(), position[0]
    for length in range(counts, len(content) + 1):
        missing = len(content) - length
        after = {"nothing": b"", "zeros": bytes(missing), "noise": b"\x5a" * missing}[rest]
        segment.write_bytes(content[:length] + after)
        again = PartitionLog(storage, FOLDER, f"after-{length}")
        again.go_to(position)
        assert (again.read_head(0), again.read_row(0, 0)) == (b"counts", b"row")
        assert again.labels() == {0}
        again.of(0).write_head(b"next")
        after_it = again.write()
        again.close()
        reader = PartitionLog(storage, FOLDER, "reader")
        reader.go_to(after_it)
        assert (reader.read_head(0), reader.read_row(0, 0)) == (b"next", b"row")
        assert after_it[0] == position[0], "nobody appends to what another process has begun"


def test_full_disk_is_named_and_the_log_goes_on_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E42: whether there is space for a part of the record or for none of it."""
    storage, write = FileStorage(tmp_path), os.pwrite
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    log.of(0).write_head(b"one")
    position = log.write()
    for space in range(0, 47, 6):
        left = [space]

        def fill(file: int, data: bytes, offset: int, left: list[int] = left) -> int:
            if not left[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = write(file, data[: left[0]], offset)
            left[0] -= written
            return written

        log.go_to(position)
        log.of(0).write_head(b"two")
        with monkeypatch.context() as full:
            full.setattr(os, "pwrite", fill)
            with pytest.raises(StorageError, match=f"{FOLDER}/1-.*No space left on device"):
                log.write()
    log.go_to(position)
    assert log.read_head(0) == b"one"
    log.of(0).write_head(b"three")
    reader = PartitionLog(storage, FOLDER, "reader")
    reader.go_to(log.write())
    assert reader.read_head(0) == b"three"


def golden(storage: Storage) -> LogPosition:
    log = PartitionLog(storage, FOLDER, "1")
    log.go_to(EMPTY)
    log.of(3).write_head(b"head")
    log.of(3).write_row(0, b"row")
    log.of(3).write_row(1, b"gone")
    log.go_to(log.write())
    log.of(3).delete_row(1)
    log.of(4).write_head(b"other")
    position = log.write()
    log.close()
    return position


def test_segment_written_when_its_format_was_new_can_be_read() -> None:
    """From the first release on: never regenerate a golden file, add one for the new version."""
    storage = MemoryStorage()
    storage.new_log(f"{FOLDER}/1-0").append([GOLDEN.read_bytes()])
    log = PartitionLog(storage, FOLDER, "2")
    log.go_to(((f"{FOLDER}/1-0", len(GOLDEN.read_bytes())),))
    assert (log.read_head(3), log.read_row(3, 0), log.read_head(4)) == (b"head", b"row", b"other")
    with pytest.raises(CorruptDataError, match="row 1 of label 3 is missing"):
        log.read_row(3, 1)


class CountingStorage(MemoryStorage):
    """Counts what is read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = self.reads = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.bytes_read += length
        self.reads += 1
        return super().read(name, offset, length)


@pytest.mark.parametrize("row_bytes", [10, 1 << 20])
def test_process_that_takes_over_reads_little_of_the_rows(row_bytes: int) -> None:
    """Neither large rows, which it may not need, nor many small records one by one."""
    storage = CountingStorage()
    log = PartitionLog(storage, FOLDER, "1")
    position: LogPosition = EMPTY
    for number in range(20):
        log.go_to(position)
        log.of(3).write_row(number, bytes([number]) * row_bytes)
        position = log.write()
    storage.bytes_read = storage.reads = 0
    another = PartitionLog(storage, FOLDER, "2")
    another.go_to(position)
    if row_bytes == 10:
        assert storage.reads == 1
    else:
        assert storage.bytes_read < 20 * row_bytes / 2
    assert another.read_row(3, 7) == b"\x07" * row_bytes


@pytest.mark.parametrize("where", ["head of a record", "entries", "cut"])
def test_damage_is_named(where: str) -> None:
    blob = bytearray(GOLDEN.read_bytes())
    length = len(blob)
    if where == "cut":
        length -= 3
    else:
        blob[0 if where == "head of a record" else 30] ^= 1
    storage = MemoryStorage()
    storage.new_log(f"{FOLDER}/1-0").append([bytes(blob)])
    with pytest.raises(CorruptDataError, match=f"{FOLDER}/1-0, byte .*savepoint"):
        PartitionLog(storage, FOLDER, "2").go_to(((f"{FOLDER}/1-0", length),))


if __name__ == "__main__" and not GOLDEN.exists():
    write_golden(GOLDEN, golden, f"{FOLDER}/1-0")  # type: ignore[arg-type]


def test_what_is_too_much_for_memory_does_not_wait_for_the_end_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_log, "MOST_PENDING", 1000)
    storage = MemoryStorage()
    log = PartitionLog(storage, FOLDER, "a")
    for number in range(50):
        log.of(1).write_row(number, bytes(99))
        assert sum(len(row or b"") for row in log._pending.values()) <= 1000
    log.of(1).write_head(b"head")
    position = log.write()
    other = PartitionLog(storage, FOLDER, "b")
    other.go_to(position)
    assert [other.read_row(1, number) for number in range(50)] == [bytes(99)] * 50
    log.go_to(EMPTY)
    assert log.labels() == set(), "and it can still be undone"


def test_segments_that_are_full_and_valid_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a large state needs."""
    monkeypatch.setattr(partition_log, "MOST_PENDING", 1000)
    monkeypatch.setattr(partition_log, "SEGMENT_BYTES", 1000)
    storage = MemoryStorage()
    log = PartitionLog(storage, FOLDER, "a")
    for number in range(100):
        log.of(1).write_row(number, bytes(990))
    position = log.write()
    assert len(position) > 2 * partition_log.MOST_SEGMENTS
    for _ in range(5):
        log.go_to(position)
        log.of(1).write_row(0, b"small")
        after = log.write()
        assert sum(length for _, length in after) - sum(length for _, length in position) < 200
        position = after
