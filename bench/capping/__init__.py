"""Frequency capping, the job of the side-by-side benchmark."""
