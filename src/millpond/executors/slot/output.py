"""What functions print in a slot."""

from __future__ import annotations

import contextlib
import io
import os

_LOG_BYTES = 1 << 20


class Tee(io.TextIOBase):
    """Sends what functions print to the executor's output and, for error reports, to the slot's log."""

    def __init__(self, log_fd: int, executor_fd: int) -> None:
        self._log_fd = log_fd
        self._executor_fd = executor_fd

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        with contextlib.suppress(OSError):  # the executor's output may be gone, or the disk full
            os.write(self._executor_fd, data)
        with contextlib.suppress(OSError):
            if os.lseek(self._log_fd, 0, os.SEEK_CUR) > _LOG_BYTES:
                os.ftruncate(self._log_fd, 0)
            os.write(self._log_fd, data)
        return len(text)
