"""Orders to a job: files in a folder that the job watches, with answers in another folder (answers.py).

An order is a file `<time>-<id>.json` with one of

    {"republish": ID}                               write everything that is capped to Redis again
    {"forget": ID, "user": USER}                    erase a user from state and Redis
    {"explain": ID, "user": USER, "ad": AD or null} say what is known about a user, and what is capped why

Every order is answered by {"done": ID}, in the same epoch as its effect; answers with content come before.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any, TypeGuard

ORDERS = ("republish", "forget", "explain")
Order = dict[str, Any]  # the content of an order, as above


class ControlFolder:
    """The folder through which a job gets orders, for both sides: those who give orders, and the job."""

    def __init__(self, path: str | Path) -> None:
        self.orders = Path(path) / "orders"
        self.answers = Path(path) / "answers"

    def give(self, kind: str, **content: str | None) -> str:
        """Write an order for the job, and return its id."""
        order_id = uuid.uuid4().hex
        self.orders.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.orders / f"{time.time_ns():020d}-{order_id}.json"
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps({kind: order_id, **content}))
        os.replace(aside, path)
        return order_id

    def new_orders(self, after: str) -> list[tuple[str, str]]:
        """Return name and content of the orders that came after the one with the name `after`; files that
        are not valid orders are skipped."""
        if not self.orders.is_dir():
            return []
        names = sorted(p.name for p in self.orders.glob("*.json") if p.name > after)
        found = [(name, (self.orders / name).read_text()) for name in names]
        return [(name, text) for name, text in found if _is_right(text)]

    def answers_to(self, order_id: str) -> list[dict[str, Any]] | None:
        """Return the answers to an order; None as long as it has not been carried out. The order and its
        answers are then deleted, because they may name a user."""
        path = self.answers / f"{order_id}.json"
        try:
            found: list[dict[str, Any]] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        for order in self.orders.glob(f"*-{order_id}.json"):
            order.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return found

    def erase(self, user: str) -> None:
        """Delete the answers about a user that nobody has taken."""
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


def order_in(message: object) -> str | None:
    """Return the kind of order that a message is; None if it is not an order."""
    if not isinstance(message, dict):
        return None
    return next((kind for kind in ORDERS if kind in message), None)


def is_order(message: object) -> TypeGuard[Order]:
    """Return True if a message is an order."""
    return order_in(message) is not None


def done(message: Order) -> str:
    """Return the last answer to an order, which says that it has been carried out."""
    kind = order_in(message)
    assert kind is not None
    return json.dumps({"done": message[kind]})
