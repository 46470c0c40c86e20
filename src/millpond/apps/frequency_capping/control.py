"""Orders to a job: files in a folder that it looks into, and answers in another (answers.py).

An order is a file `<time>-<id>.json` with one of

    {"republish": ID}                               write to Redis again what is capped
    {"forget": ID, "user": USER}                    erase a user from state and Redis
    {"explain": ID, "user": USER, "ad": AD or null} tell what is known, and why

Every order is answered by {"done": ID}, in the same epoch as its effect; what it asks for stands before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

ORDERS = ("republish", "forget", "explain")


class ControlFolder:
    def __init__(self, path: str | Path) -> None:
        self.orders = Path(path) / "orders"
        self.answers = Path(path) / "answers"

    def give(self, kind: str, **content: Any) -> str:
        """Returns the order's id."""
        own = uuid.uuid4().hex
        self.orders.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.orders / f"{time.time_ns():020d}-{own}.json"
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps({kind: own, **content}))
        os.replace(aside, path)
        return own

    def new_orders(self, after: str) -> list[tuple[str, str]]:
        """(name, content) of those that came after the one of this name."""
        if not self.orders.is_dir():
            return []
        names = sorted(p.name for p in self.orders.glob("*.json") if p.name > after)
        found = [(name, (self.orders / name).read_text()) for name in names]
        return [(name, text) for name, text in found if _is_right(text)]

    def answers_to(self, own: str) -> list[dict[str, Any]] | None:
        """None while the order is not done. Nothing is left of it afterwards: it may name a user."""
        path = self.answers / f"{own}.json"
        try:
            found: list[dict[str, Any]] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        for order in self.orders.glob(f"*-{own}.json"):
            order.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return found

    def erase(self, user: str) -> None:
        """Answers about a user that nobody has taken."""
        for path in self.answers.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                if any(answer.get("user") == user for answer in json.loads(path.read_text())):
                    path.unlink()


def _is_right(text: str) -> bool:
    try:
        order = json.loads(text)
    except ValueError:
        return False
    kind = order_in(order)
    return kind is not None and (kind == "republish" or isinstance(order.get("user"), str))


def order_in(message: Any) -> str | None:
    """Which order a message is, if it is one."""
    if not isinstance(message, dict):
        return None
    return next((kind for kind in ORDERS if kind in message), None)


def is_order(message: Any) -> bool:
    return order_in(message) is not None


def done(message: Any) -> str:
    kind = order_in(message)
    assert kind is not None
    return json.dumps({"done": message[kind]})
