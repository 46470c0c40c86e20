"""Type variables of the public contracts. A checker takes a contract without parameters as one of Any.

So `class Count(MapFunction)` needs no parameters, as in PyFlink, and `class Count(MapFunction[str, int])` is
checked. Python 3.11 does not know defaults of type variables; only checkers see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    IN = TypeVar("IN", default=Any)
    IN1 = TypeVar("IN1", default=Any)
    IN2 = TypeVar("IN2", default=Any)
    OUT = TypeVar("OUT", default=Any)
    ACC = TypeVar("ACC", default=Any)
    KEY = TypeVar("KEY", default=Any)
    TXN = TypeVar("TXN", default=Any)
    W = TypeVar("W", default=Any)
    W2 = TypeVar("W2", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    IN = TypeVar("IN")
    IN1 = TypeVar("IN1")
    IN2 = TypeVar("IN2")
    OUT = TypeVar("OUT")
    ACC = TypeVar("ACC")
    KEY = TypeVar("KEY")
    TXN = TypeVar("TXN")
    W = TypeVar("W")
    W2 = TypeVar("W2")
