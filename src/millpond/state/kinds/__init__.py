"""The kinds of keyed state: one specification each, found by `registry.spec_of`.

To add a kind, write a module with a `StateKindSpec`, list it in `registry.py`, and give the kind its public
name and descriptor (`StateKind`, `datastream/state.py`). Nothing else knows which kinds there are.
"""
