"""State in an embedded RocksDB on the slot's local disk: for state larger than memory.

RocksDB's write-ahead log is off: what dies with the process comes back from the change logs of the key
groups.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.datastream.state_backend import BackendContext, OrderedStore, OrderedStoreBackend
from millpond.errors import JobExecutionError, ProgramError, SetupError

_COMPRESSIONS = ("none", "snappy", "lz4", "zstd")
_STYLES = ("level", "universal")  # not fifo, which drops old entries as a cache would


class RocksDBStateBackend(OrderedStoreBackend):
    """The backend `state.backend.type=rocksdb`."""

    reads_from_any_thread = True

    def open_store(self, context: BackendContext) -> OrderedStore:
        """Open an empty database in the context's folder."""
        return RocksDBStore(context)


class RocksDBStore(OrderedStore):
    """An ordered store in RocksDB."""

    def __init__(self, context: BackendContext) -> None:
        rocksdict = import_rocksdict()
        self._read_options = rocksdict.ReadOptions
        self._batch = rocksdict.WriteBatch
        self._db = rocksdict.Rdict(
            str(context.folder), make_options(Configuration.from_dict(context.options))
        )
        writing = rocksdict.WriteOptions()
        writing.disable_wal = True
        self._db.set_write_options(writing)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        value: bytes | None = self._db.get(key)
        return value

    def getter(self) -> Callable[[bytes], bytes | None]:
        """Return RocksDB's own look-up, which saves a call."""
        return self._db.get  # type: ignore[no-any-return]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from `start` up to, not including, `end`, as they are now."""
        reading = self._read_options()
        reading.set_iterate_upper_bound(end)
        return _held(self._db.items(from_key=start, read_opt=reading), reading)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """Write deletes, then puts, all or nothing. Raises JobExecutionError if RocksDB cannot, as when the
        disk is full."""
        batch = self._batch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key in deletes:
            delete(key)
        for key, value in puts:
            put(key, value)
        try:
            self._db.write(batch)
        except Exception as problem:  # rocksdict raises nothing more specific
            raise JobExecutionError(
                f"RocksDB cannot write to {self._db.path()}: {problem}. If the disk is full, "
                f"set {options.STATE_LOCAL_DIR.key} to a folder on another disk."
            ) from problem

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete everything from `start` up to, not including, `end`. An empty range costs no tombstone."""
        if next(self.scan(start, end), None) is not None:
            self._db.delete_range(start, end)

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def _held(items: Iterator[tuple[bytes, bytes]], _: object) -> Iterator[tuple[bytes, bytes]]:
    """Return the items, and hold their read options as long: the bound of an iterator lies in them."""
    yield from items


def import_rocksdict() -> ModuleType:
    """Return the module rocksdict. Raises SetupError if it is not installed."""
    try:
        return importlib.import_module("rocksdict")
    except ImportError:
        raise SetupError(
            "state.backend.type is rocksdb, but the package rocksdict is not installed: "
            "pip install 'millpond[rocksdb]', on every machine of the cluster."
        ) from None


def make_options(configuration: Configuration) -> Any:
    """Return RocksDB's options, as a job's settings say. Raises ProgramError if one is wrong."""
    rocksdict = import_rocksdict()
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(options.ROCKSDB_CACHE.read_bytes(configuration)))
    table.set_block_size(options.ROCKSDB_BLOCK_SIZE.read_bytes(configuration))
    # Otherwise they would be kept in memory beside the cache, however large the state grows.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # Small blocks, because one that is larger than a shard of the cache would be read for every look-up.
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_pin_top_level_index_and_filter(True)
    bits = options.ROCKSDB_BLOOM_BITS.read(configuration)
    if options.ROCKSDB_BLOOM.read(configuration):
        table.set_bloom_filter(bits, False)
    database = rocksdict.Options(raw_mode=True)
    database.create_if_missing(True)
    database.set_write_buffer_size(options.ROCKSDB_BUFFER_SIZE.read_bytes(configuration))
    database.set_max_write_buffer_number(options.ROCKSDB_BUFFERS.read(configuration))
    database.set_max_background_jobs(options.ROCKSDB_THREADS.read(configuration))
    compression = options.ROCKSDB_COMPRESSION.read_choice(configuration, _COMPRESSIONS)
    database.set_compression_type(getattr(rocksdict.DBCompressionType, compression)())
    style = options.ROCKSDB_COMPACTION.read_choice(configuration, _STYLES)
    database.set_compaction_style(getattr(rocksdict.DBCompactionStyle, style)())
    database.set_keep_log_file_num(1)
    factory = options.ROCKSDB_FACTORY.read(configuration)
    if factory is not None:
        made = load_by_name(factory, options.ROCKSDB_FACTORY.key)(database, table)
        database = database if made is None else made
    database.set_block_based_table_factory(table)
    return database


def load_by_name(name: str, setting: str) -> Any:
    """Return what a dotted name stands for. Raises ProgramError, naming `setting`, if it cannot be
    imported."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ProgramError(
            f"{setting} names '{name}', which cannot be imported: {problem}. It must be "
            "package.module.name, and importable on every machine (python.files)."
        ) from None
