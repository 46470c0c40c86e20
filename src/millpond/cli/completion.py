"""`millpond completion`: prints a script with which bash or zsh completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from millpond.cli.commands import Commands
from millpond.errors import SetupError

_METAVARS = ("DIR", "FILE", "FILES", "PATH", "DIR|PATH", "JOB|PROGRAM")  # of files and folders


def add_commands(commands: Commands, build_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add `completion`. `build_parser` returns the parser of all commands, plug-ins included."""
    completion = commands.add_parser(
        "completion",
        help="print a completion script for bash or zsh",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Print a script with which your shell completes commands and options.\n\n"
        'bash: put this line into ~/.bashrc:   eval "$(millpond completion bash)"\n'
        "zsh:  write it to a folder in $fpath:  millpond completion zsh > FOLDER/_millpond",
    )
    completion.add_argument("shell", choices=["bash", "zsh"], help="the shell to complete in")
    completion.set_defaults(call=lambda parsed: _run(parsed.shell, build_parser()))


def _run(shell: str, parser: argparse.ArgumentParser) -> int:
    try:
        import shtab
    except ImportError:
        raise SetupError(
            "Printing the completion script needs shtab: pip install 'millpond[cluster]'."
        ) from None
    for argument in _file_arguments(parser):
        argument.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=shell))
    return 0


def _file_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments that take a file or folder, of all commands; their metavars tell which."""
    found: list[argparse.Action] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += _file_arguments(command)
        elif action.metavar in _METAVARS or action.dest in ("program", "arguments"):
            found.append(action)
    return found
