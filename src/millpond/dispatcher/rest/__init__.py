"""Flink's REST API for the dispatcher, with Flink's paths and field names so that Flink's clients work
(O1).
"""
