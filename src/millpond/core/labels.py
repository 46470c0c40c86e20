"""Labels: the integers by which Spark groups rows.

Spark sends a row to partition `pmod(murmur3(label, seed 42), n)`. Murmur3 of a single int can be inverted, so
we choose the label whose hash is the number we want: partition = number mod n, whatever n is. Key groups are
spread evenly, and stay so after a rescale, without a partitioner of our own.

The number is `ordinal * 32768 + key group` for a keyed task, where the ordinal is the position of the task
among those of its level. A task without a key has the index of the subtask instead of the key group.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_SEED = 42
_INVERSE = {constant: pow(constant, -1, 1 << 32) for constant in (_C1, _C2, _F1, _F2, 5)}
NUMBERS_PER_TASK = 1 << 15


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


def spark_hash(label: int) -> int:
    """Return Spark's Murmur3 hash of an int column, as an unsigned number."""
    k = _rotate_left((label & _MASK) * _C1 & _MASK, 15) * _C2 & _MASK
    h = (_rotate_left(_SEED ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h ^= h >> 16
    h = h * _F1 & _MASK
    h ^= h >> 13
    h = h * _F2 & _MASK
    return h ^ (h >> 16)


def _unshift_right(value: int, bits: int) -> int:
    result = value
    for _ in range(32 // bits):
        result = value ^ (result >> bits)
    return result


def label_for_hash(wanted: int) -> int:
    """Return the one int whose Spark hash is `wanted`."""
    h = _unshift_right(wanted & _MASK, 16)
    h = h * _INVERSE[_F2] & _MASK
    h = _unshift_right(h, 13)
    h = h * _INVERSE[_F1] & _MASK
    h = _unshift_right(h, 16)
    h ^= 4
    h = (h - 0xE6546B64) * _INVERSE[5] & _MASK
    k = _rotate_left(h, 32 - 13) ^ _SEED
    k = k * _INVERSE[_C2] & _MASK
    return _signed(_rotate_left(k, 32 - 15) * _INVERSE[_C1] & _MASK)


def make_label(ordinal: int, number: int) -> int:
    """Return the label of a key group or subtask (`number`) of the task with this ordinal in its level."""
    return label_for_hash(ordinal * NUMBERS_PER_TASK + number)


def split_label(label: int) -> tuple[int, int]:
    """Return the (ordinal, number) from which `make_label` made a label."""
    return divmod(spark_hash(label), NUMBERS_PER_TASK)
