"""Flink's REST API over the dispatcher: its paths and field names, so that known clients work (O1)."""
