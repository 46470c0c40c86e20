"""Programs that are products of their own."""
