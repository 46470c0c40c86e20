"""Benchmarks: `bin/bench --help`."""
