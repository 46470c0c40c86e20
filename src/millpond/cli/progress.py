"""A progress line on standard error, for whatever takes long. It appears on terminals only."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import TextIO


class Progress:
    """One line that is overwritten again and again. As a context manager, it clears the line at the end.
    Call `clear` before anything else is printed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.visible = self._stream.isatty()
        self._shown = 0

    def show(self, text: str) -> None:
        """Replace the line by this text, cut to the terminal's width. Without a terminal, do nothing."""
        if not self.visible:
            return
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._shown))
        self._stream.flush()
        self._shown = len(text)

    def clear(self) -> None:
        """Remove the line, if one is shown."""
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._stream.flush()
            self._shown = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
