"""A sink for the answers to orders: it writes a file for each order once all of its answers are there."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext

_KEPT_S = 3600.0  # how long an answer is kept that nobody takes


class AnswerSink(TwoPhaseSink):
    """Takes JSON: {"id": ORDER, ...} is an answer, and {"done": ORDER} says that there are no more.

    The file ORDER.json in `folder` holds a list of the answers. Whoever reads it removes it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Texts()

    def commit(self, epoch: Epoch, messages: list[list[str]]) -> None:
        answers = [json.loads(text) for message in messages for text in message]
        if not answers:
            return
        folder = Path(self._folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for order in [answer["done"] for answer in answers if "done" in answer]:
            _write(folder, order, [answer for answer in answers if answer.get("id") == order])
        for path in folder.glob("*.json"):
            if path.stat().st_mtime < time.time() - _KEPT_S:
                path.unlink(missing_ok=True)


def _write(folder: Path, order: str, answers: list[dict[str, object]]) -> None:
    aside = folder / f".{uuid.uuid4().hex}"
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(answers, file)
    os.replace(aside, folder / f"{order}.json")


class _Texts(SinkWriter):
    def __init__(self) -> None:
        self._texts: list[str] = []

    def write(self, value: str, context: SinkContext) -> None:
        self._texts.append(value)

    def prepare(self) -> list[str]:
        return self._texts
