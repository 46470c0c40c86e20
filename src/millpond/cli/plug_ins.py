"""Commands that other packages, and the apps of this one, add to `millpond`.

A plug-in is an entry point of the group `millpond.commands`. Its name is that of its command, and it names a
function that gets what `ArgumentParser.add_subparsers` returns and adds a parser to it, which sets `call`: a
function of the parsed arguments that returns an exit code. It is imported whenever help is shown, so its
module should import little; `call` imports the rest.

A plug-in that fails does no harm to other commands: only whoever calls its command is told.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from millpond.errors import SetupError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "millpond.commands"
_MARK = "plug_in"  # of parsed arguments


def add_commands(commands: Any, wanted: str | None) -> None:
    """Add the plug-in whose command is wanted, or all of them if there is none of that name."""
    from importlib.metadata import (
        entry_points,
    )  # it looks at every package: not for commands of our own

    found = sorted(entry_points(group=GROUP), key=lambda own: own.name)
    for entry in [own for own in found if own.name == wanted] or found:
        _add(commands, entry)


def is_from_plug_in(parsed: argparse.Namespace) -> bool:
    return hasattr(parsed, _MARK)


def _add(commands: Any, entry: EntryPoint) -> None:
    if entry.name in commands.choices:
        return  # our own commands come first, and of two plug-ins of a name one
    try:
        add = entry.load()
        # First aside, so that nothing is left of a plug-in that fails halfway.
        aside = argparse.ArgumentParser().add_subparsers()
        add(aside)
        if set(aside.choices) != {entry.name}:
            raise SetupError(
                f"it adds {', '.join(aside.choices) or 'nothing'}, not its own command"
            )
        add(commands)
    except Exception as problem:  # whatever somebody else's code raises
        _add_broken(commands, entry, problem)
        return
    commands.choices[entry.name].set_defaults(**{_MARK: entry.name})


def _add_broken(commands: Any, entry: EntryPoint, problem: Exception) -> None:
    """A command that takes any arguments, and tells what is wrong."""
    package = "an unknown package" if entry.dist is None else f"the package {entry.dist.name}"
    reason = f"{type(problem).__name__}: {problem}"

    def fail(_: argparse.Namespace) -> int:
        raise SetupError(
            f"The command '{entry.name}' is a plug-in of {package} that cannot be loaded ({entry.value}): "
            f"{reason}. Install that package again, or remove it."
        )

    # No argument begins with this character, so none is taken for an option.
    broken = commands.add_parser(
        entry.name, help="(cannot be loaded)", prefix_chars="\0", add_help=False
    )
    broken.add_argument("arguments", nargs="*")
    broken.set_defaults(call=fail)
