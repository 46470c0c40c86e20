"""Savepoints: a job's state as a folder that needs nothing else (E45-E48). See docs/savepoint-format.md."""
