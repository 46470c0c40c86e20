"""Chooses and opens the backend of a job, as `state.backend.type` says."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.datastream.state_backend import (
    BackendContext,
    OrderedStoreBackend,
    StateBackend,
)
from millpond.errors import MillpondError, ProgramError, SetupError
from millpond.state.hash.backend import HashMapStateBackend, MemoryStateBackend
from millpond.state.ordered.backend import OrderedBackend
from millpond.state.ordered.rocksdb import RocksDBStateBackend, load_by_name, make_options

_PREFIX = "state.backend."
BackendClass = type[StateBackend] | type[OrderedStoreBackend]
_KNOWN: dict[str, BackendClass] = {
    "hashmap": HashMapStateBackend,
    "rocksdb": RocksDBStateBackend,
    "memory": MemoryStateBackend,
}


def backend_class(backend_type: str) -> BackendClass:
    """Return the class that `state.backend.type` names. Raises ProgramError if it names none."""
    if backend_type in _KNOWN:
        return _KNOWN[backend_type]
    if "." not in backend_type:
        raise ProgramError(
            f"{options.STATE_BACKEND.key} is '{backend_type}'; it must be one of "
            f"{', '.join(_KNOWN)}, or package.module.Class of a StateBackend of your own."
        )
    named = load_by_name(backend_type, options.STATE_BACKEND.key)
    if not isinstance(named, type) or not issubclass(named, (StateBackend, OrderedStoreBackend)):
        raise ProgramError(
            f"{options.STATE_BACKEND.key} names '{backend_type}', which is not a class that extends "
            "StateBackend or OrderedStoreBackend of millpond.datastream.state_backend."
        )
    return named


def backend_settings(configuration: Configuration) -> dict[str, str]:
    """Return the settings that are passed to the backend: all that begin with `state.backend.`. Raises
    ProgramError if the type, or an option of RocksDB, is wrong."""
    settings = {
        key: value for key, value in configuration.to_dict().items() if key.startswith(_PREFIX)
    }
    if backend_class(options.STATE_BACKEND.read(configuration)) is RocksDBStateBackend:
        make_options(configuration)
    return settings


def make_backend(backend: BackendClass) -> StateBackend:
    """Return a backend of this class that is not open yet."""
    made = backend()
    return OrderedBackend(made) if isinstance(made, OrderedStoreBackend) else made


class OpenBackend:
    """An open backend with its folder, which is `folder`, or a new temporary one if that is None. `close`
    ends both; it is called at the latest when this object is collected."""

    def __init__(
        self,
        settings: dict[str, str],
        folder: str | None = None,
        memory_limit_mb: int | None = None,
    ) -> None:
        backend_type = settings.get(options.STATE_BACKEND.key, options.STATE_BACKEND.default)
        self.backend = make_backend(backend_class(backend_type))
        path = Path()
        try:
            if not self.backend.in_memory:
                path = _new_folder(folder, settings.get(options.STATE_LOCAL_DIR.key))
            self.backend.open(BackendContext(path, settings, memory_limit_mb))
        except MillpondError:
            raise
        except Exception as problem:  # whatever a user's own backend raises
            raise SetupError(
                f"The state backend '{backend_type}' cannot be opened in {folder or path}: {problem}. "
                f"Set {options.STATE_LOCAL_DIR.key} to another folder."
            ) from problem
        # Also called when this object is collected.
        self.close = weakref.finalize(self, _close, self.backend, path)


def _new_folder(folder: str | None, local_dir: str | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="millpond-state-", dir=local_dir))
    shutil.rmtree(folder, ignore_errors=True)  # left by a slot that was killed
    path = Path(folder)
    path.mkdir(parents=True, mode=0o700)
    return path


def _close(backend: StateBackend, folder: Path) -> None:
    """Close the backend, then remove its folder: RocksDB would wait a second for a folder that is gone."""
    backend.close()
    if not backend.in_memory:
        shutil.rmtree(folder, ignore_errors=True)
