"""Formats of records in files, with PyFlink's names."""
