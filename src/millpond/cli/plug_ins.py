"""Commands that other packages, and the applications of this one, add to `millpond`.

A plug-in is an entry point of the group `millpond.commands`, named like its command. It refers to a function
that takes what `ArgumentParser.add_subparsers` returns (`Commands`) and adds a parser for the command. The
parser sets `call`: a function that takes the parsed arguments and returns an exit code. The plug-in's module
is imported whenever help is shown, so it should import little; `call` imports the rest.

A plug-in that cannot be loaded does not affect other commands: the error appears when its command is called.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from millpond.cli.commands import Commands
from millpond.errors import SetupError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "millpond.commands"
_MARK = "plug_in"  # an attribute of the parsed arguments: the name of the plug-in


def add_commands(commands: Commands, wanted: str | None) -> None:
    """Add the plug-ins that provide the command `wanted`, or all plug-ins if none does."""
    # Imported here because it is slow, and not needed for our own commands.
    from importlib.metadata import entry_points

    plug_ins = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in [entry for entry in plug_ins if entry.name == wanted] or plug_ins:
        _add(commands, entry)


def is_from_plug_in(parsed: argparse.Namespace) -> bool:
    """Return True if the parsed arguments are those of a plug-in's command."""
    return hasattr(parsed, _MARK)


def _add(commands: Commands, entry: EntryPoint) -> None:
    if entry.name in commands.choices:
        return  # our own commands have precedence, and so has the first of two plug-ins with one name
    try:
        add = entry.load()
        # First to a parser that is thrown away, so that a plug-in that fails halfway leaves nothing behind.
        trial = argparse.ArgumentParser().add_subparsers()
        add(trial)
        if set(trial.choices) != {entry.name}:
            raise SetupError(
                f"it adds {', '.join(trial.choices) or 'nothing'} instead of the command {entry.name}"
            )
        add(commands)
    except Exception as problem:  # other people's code can raise anything
        _add_broken(commands, entry, problem)
        return
    commands.choices[entry.name].set_defaults(**{_MARK: entry.name})


def _add_broken(commands: Commands, entry: EntryPoint, problem: Exception) -> None:
    """Add a command that takes any arguments and raises an error that says why it cannot be loaded."""
    package = "an unknown package" if entry.dist is None else f"the package {entry.dist.name}"
    reason = f"{type(problem).__name__}: {problem}"

    def fail(_: argparse.Namespace) -> int:
        raise SetupError(
            f"The command '{entry.name}' comes from {package}, whose plug-in {entry.value} cannot be loaded: "
            f"{reason}. Reinstall or uninstall that package."
        )

    # No argument can begin with this character, so argparse takes none for an option.
    broken = commands.add_parser(
        entry.name, help="(cannot be loaded)", prefix_chars="\0", add_help=False
    )
    broken.add_argument("arguments", nargs="*")
    broken.set_defaults(call=fail)
