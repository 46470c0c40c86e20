"""Labels: which shard of which task of a level a row is for, and whose change log it is.

A label is `ordinal * 65536 + number`, where the ordinal is the position of the task among those of its level.
In rows, the number is that of a shard: the index of a subtask, or a key group if every key group is a shard.
In logs, it is a key group if the task is keyed. From `ALL_OF_PARTITION` on, it stands for everything that a
task has in one partition and that belongs to no key.
"""

from __future__ import annotations

NUMBERS_PER_TASK = 1 << 16
ALL_OF_PARTITION = 1 << 15


def make_label(ordinal: int, number: int) -> int:
    """Return the label of a shard or key group (`number`) of the task with this ordinal in its level."""
    return ordinal * NUMBERS_PER_TASK + number


def partition_label(ordinal: int, partition: int) -> int:
    """Return the label of everything that the task with this ordinal has in a partition."""
    return ordinal * NUMBERS_PER_TASK + ALL_OF_PARTITION + partition


def split_label(label: int) -> tuple[int, int]:
    """Return the (ordinal, number) of a label."""
    return divmod(label, NUMBERS_PER_TASK)
