"""Sends records to the subtask that has their key, as `key_by` would."""

from __future__ import annotations

from millpond.core.key_groups import default_max_parallelism, key_group_of, subtask_of
from millpond.datastream.functions import Partitioner


class KeyGroupPartitioner(Partitioner):
    """A partitioner that sends a key where `key_by` would, with the default number of key groups."""

    def partition(self, key: object, num_partitions: int) -> int:
        maximum = default_max_parallelism(num_partitions)
        return subtask_of(key_group_of(key, maximum), num_partitions, maximum)
