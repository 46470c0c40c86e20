"""Millpond: Flink's stateful stream processing for Python, on Apache Spark."""

__version__ = "0.1.0"
