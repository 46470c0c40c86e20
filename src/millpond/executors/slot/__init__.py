"""Slots: long-lived processes that own a partition's state and functions. See `lifecycle.py`."""
