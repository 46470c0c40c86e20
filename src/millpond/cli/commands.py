"""The type of the object to which commands add their parsers."""

from __future__ import annotations

import argparse
from typing import TypeAlias

# What ArgumentParser.add_subparsers returns. In quotes: argparse's class is generic for type checkers only.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
