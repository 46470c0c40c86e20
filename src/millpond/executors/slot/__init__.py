"""Slots: long-lived processes, each of which owns a partition's state and functions. See `lifecycle.py`."""
