"""`millpond capping ...` and `millpond demo`: plug-ins of the command line (see pyproject.toml).

This module and `options.py` are imported to read a command line, so they import nothing that takes time.
"""

from millpond.apps.frequency_capping.command.options import add_commands, add_demo_command

__all__ = ["add_commands", "add_demo_command"]
