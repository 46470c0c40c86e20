"""Applications: programs that are products in their own right."""
