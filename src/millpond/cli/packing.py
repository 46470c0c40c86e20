"""Packs a program and the modules it imports into one file, to be sent to a dispatcher.

The zip has the program as `__main__.py`, as Python requires, and the modules beside it at the top level.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from millpond.cli.exit_codes import UsageError

_MAIN = "__main__.py"


def pack(program: Path, py_files: Sequence[Path], aside: Path) -> tuple[Path, list[str]]:
    """Return the file to send, and the names of the modules beside the program that were packed with it.
    A zip is written to the folder `aside`; a program without modules of its own is sent as it is."""
    if program.suffix in (".zip", ".whl"):
        if py_files:
            raise UsageError(
                f"--py-files cannot be used with an archive: put the files into {program.name}"
            )
        return program, []
    target = aside / f"{program.resolve().stem}.zip"
    if program.is_dir():
        if not (program / _MAIN).exists():
            raise UsageError(f"the folder {program} is not a program: it has no {_MAIN}")
        _write(
            target, [(program, PurePosixPath()), *((file, _name_in_zip(file)) for file in py_files)]
        )
        return target, []
    beside = local_modules(program)
    if not beside and not py_files:
        return program, []
    files = [(program, PurePosixPath(_MAIN))]
    files += [(file, PurePosixPath(file.name)) for file in beside]
    files += [(file, _name_in_zip(file)) for file in py_files]
    _write(target, files)
    return target, [file.name for file in beside]


def local_modules(program: Path) -> list[Path]:
    """Return the modules and packages in the program's folder that it imports, directly or indirectly."""
    folder = program.resolve().parent
    found: dict[Path, None] = {}
    waiting = [program]
    while waiting:
        for name in _imported(waiting.pop()):
            for module in (folder / name, folder / f"{name}.py"):
                is_package = module.is_dir() and (module / "__init__.py").exists()
                if (is_package or module.is_file()) and module != program.resolve():
                    if module not in found:
                        found[module] = None
                        waiting += sorted(module.rglob("*.py")) if is_package else [module]
                    break
    return list(found)


def _imported(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as problem:
        raise UsageError(f"{path} is not valid Python: {problem}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def _name_in_zip(file: Path) -> PurePosixPath:
    """Return where in the zip a file goes. Of folders and archives, the contents go to the top level."""
    return PurePosixPath(file.name if file.suffix == ".py" else "")


def _write(target: Path, files: Sequence[tuple[Path, PurePosixPath]]) -> None:
    written: set[str] = set()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as package:
        for file, name_in_zip in files:
            for name, content in _contents(file, name_in_zip):
                if name in written:
                    raise UsageError(f"{file}: two of the files to send are named {name}")
                written.add(name)
                package.writestr(name, content)


def _contents(file: Path, name_in_zip: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    if file.is_dir():
        for path in sorted(file.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(name_in_zip / path.relative_to(file).as_posix()), path.read_bytes()
    elif file.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(file) as package:
            for name in package.namelist():
                if not name.endswith("/"):
                    yield name, package.read(name)
    else:
        yield str(name_in_zip), file.read_bytes()
