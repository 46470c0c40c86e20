"""Storage and the journal in it: what was acknowledged is there, what was not does no harm (E42)."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.core import journal
from millpond.core.journal import Journal, Record, RecordKind, newest_epoch, read_journal
from millpond.core.storage import FileStorage, LogWriter, MemoryStorage, Storage, read_object
from millpond.errors import CorruptDataError, StorageError

GOLDEN = Path(__file__).parents[1] / "golden" / "journal.v1.bin"
PLAN, EPOCH = RecordKind.PLAN, RecordKind.EPOCH
RECORDS = [Record(PLAN, 0, b"first plan"), Record(EPOCH, 0, b""), Record(PLAN, 1, b"x" * 300)]


@pytest.fixture(params=["files", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return FileStorage(tmp_path) if request.param == "files" else MemoryStorage()


def test_log_gives_back_what_was_appended(storage: Storage) -> None:
    log = storage.new_log("a/b/log")
    log.append([b"one", b"two"])
    log.append([b"three"])
    assert (log.name, log.length) == ("a/b/log", 11)
    assert storage.read("a/b/log", 3, 8) == b"twothree"
    assert storage.read_all("a/b/log") == b"onetwothree"
    log.close()
    with pytest.raises(FileExistsError):
        storage.new_log("a/b/log")


def test_object_is_what_was_written_last(storage: Storage) -> None:
    assert storage.find("a/b/object") is None
    for content in (b"first", b"", b"third"):
        storage.write("a/b/object", content)
        assert storage.find("a/b/object") == storage.read_all("a/b/object") == content
    assert storage.read("a/b/object", 1, 3) == b"hir"
    storage.write("object", b"in no folder")
    storage.delete("a/b/object")
    assert storage.find("a/b/object") is None
    assert storage.read_all("object") == b"in no folder"


def test_names_are_those_of_a_folder(storage: Storage) -> None:
    for name in ("a/2", "a/b/3", "ab/4"):
        storage.new_log(name).close()
    storage.write("a/1", b"object")
    assert storage.names("a") == ["a/1", "a/2"]
    assert storage.names("nothing") == []
    storage.delete("a/1")
    storage.delete("a/1")
    assert "a/1" not in storage.names("a")


def test_folder_has_what_is_anywhere_below_it(storage: Storage) -> None:
    assert not storage.has_any("a")
    storage.write("a/b/c/object", b"content")
    assert all(map(storage.has_any, ("a", "a/b", "a/b/c")))
    assert not storage.has_any("b")
    storage.delete("a/b/c/object")
    assert not storage.has_any("a"), "empty folders are no content"


def test_what_is_missing_or_too_short_is_named(storage: Storage) -> None:
    storage.new_log("a/log").append([b"123"])
    for read in (lambda: storage.read("a/log", 1, 3), lambda: storage.read("a/other", 0, 1)):
        with pytest.raises(CorruptDataError, match=r"a/(log|other)"):
            read()
    with pytest.raises(CorruptDataError, match=r"a/other is missing.* savepoint"):
        storage.read_all("a/other")


def test_files_are_private_and_prepared_with_zeros(tmp_path: Path) -> None:
    log = FileStorage(tmp_path).new_log("a/log", expected_bytes=100)
    log.append([b"content"])
    assert (tmp_path / "a" / "log").read_bytes() == b"content" + bytes(93)
    assert stat.S_IMODE((tmp_path / "a" / "log").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    FileStorage(tmp_path).write("b/object", b"content")
    assert stat.S_IMODE((tmp_path / "b" / "object").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700


def test_object_is_found_by_its_location(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    storage.write("a/b/object", b"content")
    assert read_object(storage.location("a/b/object")) == b"content"
    with pytest.raises(CorruptDataError, match=r"a/b/other is missing"):
        read_object(storage.location("a/b/other"))


@pytest.mark.parametrize("step", ["pwrite", "fsync", "replace"])
def test_object_that_could_not_be_written_is_as_it_was(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    storage.write("a/object", b"old")

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(StorageError, match=r"a/object could not be written: Input/output error"):
        storage.write("a/object", b"new")
    monkeypatch.undo()
    assert storage.read_all("a/object") == b"old"
    assert os.listdir(tmp_path / "a") == ["object"], "nothing else is left"


def test_object_that_a_crash_has_cut_short_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    with monkeypatch.context() as crash:  # a process that is killed removes nothing
        crash.setattr(os, "replace", lambda *_: None)
        storage.write("a/object", b"new")
    assert len(os.listdir(tmp_path / "a")) == 1
    assert storage.find("a/object") is None
    assert storage.names("a") == []
    assert not storage.has_any("a")


def test_what_nobody_needs_may_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch that counts must not fail because something old cannot be deleted."""
    storage = FileStorage(tmp_path)
    (tmp_path / "log" / "in the way").mkdir(parents=True)
    storage.discard("log/in the way")
    assert "in the way is not needed any more, but stays: " in caplog.text
    storage.discard("log/absent")


def test_logs_that_were_read_are_not_kept_open(tmp_path: Path) -> None:
    """A segment that was deleted would go on to take up space."""
    storage = FileStorage(tmp_path)
    open_before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        log = storage.new_log(f"a/{number}")
        log.append([b"content"])
        log.close()
        assert storage.read(f"a/{number}", 0, 7) == b"content"
    assert len(os.listdir("/proc/self/fd")) == open_before


# --- the journal ---------------------------------------------------------------------------------


def written(storage: Storage, generation: int = 1) -> Journal:
    own = Journal(storage, generation)
    own.read()
    for record in RECORDS:
        own.append(record)
    return own


def test_journal_gives_back_what_was_appended(storage: Storage) -> None:
    written(storage).close()
    assert Journal(storage, 2).read() == RECORDS
    assert newest_epoch(storage) == 0
    assert newest_epoch(MemoryStorage()) == -1


def test_drivers_write_one_after_the_other(storage: Storage) -> None:
    written(storage, 9).close()
    written(storage, 10).close()
    written(storage, 10).close()
    assert list(read_journal(storage)) == RECORDS * 3
    assert storage.names("journal") == ["journal/10-0", "journal/10-1", "journal/9-0"]


@pytest.mark.parametrize("rest", ["nothing", "zeros", "noise"])
def test_every_torn_end_is_ignored(
    rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in the file where the rest of the record should be."""
    monkeypatch.setattr(journal, "LOG_BYTES", 1000)
    written(FileStorage(tmp_path)).close()
    (log,) = (tmp_path / "journal").iterdir()
    content = log.read_bytes().rstrip(b"\0")
    last = 24 + len(RECORDS[-1].payload)
    for length in range(len(content) - last, len(content)):
        missing = len(content) - length + 100
        after = {"nothing": b"", "zeros": bytes(missing), "noise": b"\x5a" * missing}[rest]
        log.write_bytes(content[:length] + after)
        assert list(read_journal(FileStorage(tmp_path))) == RECORDS[:-1]
        own = Journal(FileStorage(tmp_path), 2)
        own.read()
        own.append(RECORDS[-1])
        own.close()
        assert list(read_journal(FileStorage(tmp_path))) == RECORDS
        FileStorage(tmp_path).delete("journal/2-0")


def test_last_record_of_which_any_byte_is_lost_is_ignored(tmp_path: Path) -> None:
    """A power failure may keep later blocks of what was written together, and not the earlier ones."""
    written(FileStorage(tmp_path)).close()
    (log,) = (tmp_path / "journal").iterdir()
    content = log.read_bytes().rstrip(b"\0")
    for position in range(len(content) - 24 - len(RECORDS[-1].payload), len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        log.write_bytes(damaged)
        assert list(read_journal(FileStorage(tmp_path))) == RECORDS[:-1]


def test_log_that_was_begun_may_lack_anything_that_was_not_acknowledged(tmp_path: Path) -> None:
    """Its basis is synced before the record that follows, so there is never one without the other."""
    lengths: list[int] = []

    class Noting(FileStorage):
        def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
            log = super().new_log(name, expected_bytes)
            append = log.append
            log.append = lambda pieces: lengths.append(append(pieces) or log.length)  # type: ignore[method-assign, func-returns-value]
            return log

    Journal(Noting(tmp_path), 1).append(RECORDS[2], [RECORDS[0], RECORDS[1]])
    basis = sum(24 + len(record.payload) for record in RECORDS[:2])
    assert lengths == [basis, basis + 24 + len(RECORDS[2].payload)]


def test_journal_goes_on_in_another_log_after_a_failed_write(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = written(storage)
    assert own._log is not None

    def full(_: object) -> None:
        raise StorageError("No space left on device")

    monkeypatch.setattr(own._log, "append", full)
    with pytest.raises(StorageError):
        own.append(Record(EPOCH, 1, b"lost"))
    own.append(Record(EPOCH, 1, b"written"))
    assert list(read_journal(storage)) == [*RECORDS, Record(EPOCH, 1, b"written")]
    assert storage.names("journal") == ["journal/1-0", "journal/1-1"]


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    written(FileStorage(tmp_path)).close()
    (log,) = (tmp_path / "journal").iterdir()
    content = log.read_bytes().rstrip(b"\0")
    last = 24 + len(RECORDS[-1].payload)
    for position in range(len(content) - last):
        damaged = bytearray(content)
        damaged[position] ^= 1
        log.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match=r"journal/1-0: damaged"):
            list(read_journal(FileStorage(tmp_path)))


def test_new_log_begins_with_what_one_needs_to_know(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LOG_BYTES", 1000)
    own, newest = Journal(storage, 1), Record(EPOCH, 0, b"")
    for number in range(100):
        own.append(Record(PLAN, number, b"p" * 100), [newest])
        newest = Record(EPOCH, number, b"e" * 100)
        own.append(newest)
        found = list(read_journal(storage))
        assert [record for record in found if record.kind == EPOCH][-1] == newest
    assert len(storage.names("journal")) == 2, "the current log, and the one before it"
    assert next(iter(read_journal(storage))).kind == EPOCH


def test_journal_written_when_its_format_was_new_can_be_read(tmp_path: Path) -> None:
    """From the first release on: never regenerate a golden file, add one for the new version."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "1-0").write_bytes(GOLDEN.read_bytes())
    assert list(read_journal(FileStorage(tmp_path))) == RECORDS


def test_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    content = bytearray(GOLDEN.read_bytes())
    content[2] = 2
    content[4:8] = zlib.crc32(content[8:34], zlib.crc32(content[:4])).to_bytes(4, "little")
    (tmp_path / "journal" / "1-0").write_bytes(content)
    with pytest.raises(CorruptDataError, match="format 2 by a newer release"):
        list(read_journal(FileStorage(tmp_path)))


def write_golden(path: Path, make: Callable[[Storage], None], name: str) -> None:
    storage = MemoryStorage()
    make(storage)
    path.write_bytes(storage.read_all(name))


if __name__ == "__main__" and not GOLDEN.exists():
    write_golden(GOLDEN, lambda storage: written(storage).close(), "journal/1-0")
