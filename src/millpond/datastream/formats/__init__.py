"""Formats of records in files and messages, with PyFlink's names."""
