"""Values at rest as bytes, for stores of bytes. Only the process that wrote them ever reads them.

80 ...                      a pickle (which begins with 80)
02 ...                      a frozen value: what follows is its pickle
01 length (4 bytes) pickle  the key, because its bytes do not tell it exactly; then one of the above
"""

from __future__ import annotations

import pickle
from typing import Any

from millpond.core.codec import Frozen
from millpond.core.pickling import PROTOCOL, dumps

_KEY, _FROZEN = 0x01, 0x02


def pack(value: object) -> bytes:
    """Return the bytes of a value at rest."""
    if type(value) is Frozen:
        return b"\x02" + value.data
    return pickle.dumps(value, PROTOCOL)  # an immutable value is made of Python's own types


def pack_with_key(key: object, value: object) -> bytes:
    """Return the bytes of a value at rest, with the key that it belongs to."""
    key_pickle = dumps(key)
    return b"\x01" + len(key_pickle).to_bytes(4, "little") + key_pickle + pack(value)


def unpack(data: bytes) -> Any:
    """Return the value in what `pack` or `pack_with_key` returned."""
    first = data[0]
    if first == 0x80:
        return pickle.loads(data)
    if first == _FROZEN:
        return Frozen(data[1:])
    return unpack(data[5 + int.from_bytes(data[1:5], "little") :])


def kept_key(data: bytes) -> Any:
    """Return the key that was packed with a value; None if there is none. None itself never needs it."""
    if data[0] != _KEY:
        return None
    return pickle.loads(data[5 : 5 + int.from_bytes(data[1:5], "little")])
