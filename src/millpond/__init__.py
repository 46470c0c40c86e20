"""Millpond: Flink's stateful stream processing for Python, on Apache Spark."""

from millpond.missing import install_finder

__version__ = "0.1.0"

install_finder()
