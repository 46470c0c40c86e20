"""`millpond completion bash|zsh`: prints what makes a shell complete commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from millpond.errors import SetupError

_METAVARS = ("DIR", "FILE", "FILES", "PATH", "DIR|PATH", "JOB|PROGRAM")


def add_commands(commands: Any, build_parser: Callable[[], argparse.ArgumentParser]) -> None:
    completion = commands.add_parser(
        "completion",
        help="print completion for bash or zsh",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='bash: eval "$(millpond completion bash)" in ~/.bashrc\n'
        "zsh:  millpond completion zsh > a folder of $fpath/_millpond",
    )
    completion.add_argument("shell", choices=["bash", "zsh"])
    completion.set_defaults(call=lambda parsed: _run(parsed.shell, build_parser()))


def _run(shell: str, parser: argparse.ArgumentParser) -> int:
    try:
        import shtab
    except ImportError:
        raise SetupError(
            "Completion needs shtab, just for printing it: pip install 'millpond[cluster]'."
        ) from None
    for place in _files(parser):
        place.complete = shtab.FILE
    print(shtab.complete(parser, shell=shell))
    return 0


def _files(parser: argparse.ArgumentParser) -> list[Any]:
    """Arguments that are files or folders, by how they are shown."""
    found: list[Any] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                found += _files(own)
        elif action.metavar in _METAVARS or action.dest in ("program", "arguments"):
            found.append(action)
    return found
