"""Measure how the source is kept, per package and in total.

    .venv/bin/python tools/house.py [SOURCE_ROOT] [--list WHAT]

SOURCE_ROOT is src/millpond unless given; `--list` prints every place behind a column instead of the table.

How it counts:

modules     Python files. A package is a folder right below the root, with all below it; files right below the
            root count as the package "(root)".
long        Functions of more than 50 lines, from `def` to the last line, docstring included. A nested
            function counts on its own and as a part of the function around it.
complex     Functions with a cyclomatic complexity of more than 10, as ruff's C901 computes it: 1, plus 1 for
            each `if`, `elif`, loop, `except`, `else` of a `try`, `case` and nested function. Boolean
            operators and comprehensions do not count.
Any         Share of annotations that are Any, or a union with Any (the same to a type checker). Annotations
            are those of parameters, returns and variables; `self` and `cls` have none.
with Any    Share of annotations that mention Any anywhere, as in `dict[str, Any]`, or an alias of Any.
docstrings  Share of public classes, functions, methods and properties that have a docstring. Public means
            that no part of the dotted name begins with an underscore. Setters, overloads and functions inside
            functions do not count, nor does an override without a docstring whose base class (found by name,
            below the root) documents the method: editors show that docstring.
crowded     Folders with more than 25 modules, not counting those of their sub-folders.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LONGEST_FUNCTION = 50
HIGHEST_COMPLEXITY = 10
MOST_MODULES = 25
ROOT_PACKAGE = "(root)"
COLUMNS = ("modules", "long", "complex", "Any", "with Any", "docstrings", "crowded")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = FunctionNode | ast.ClassDef


@dataclass
class Module:
    """A parsed source file. `name` is dotted and begins with the name of the root folder."""

    path: Path
    name: str
    package: str
    tree: ast.Module
    nodes: list[ast.AST]  # all of the tree


@dataclass
class Count:
    """What was found in one package. The lists hold places such as `driver/clock.py:12 Clock.tick`."""

    modules: int = 0
    annotations: int = 0
    documented: int = 0
    long: list[str] = field(default_factory=list)
    complex: list[str] = field(default_factory=list)
    any: list[str] = field(default_factory=list)
    with_any: list[str] = field(default_factory=list)
    undocumented: list[str] = field(default_factory=list)
    crowded: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Add what was found in another package, for a total."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def any_share(self) -> float:
        """Share of annotations that amount to Any, from 0 to 1."""
        return len(self.any) / self.annotations if self.annotations else 0.0

    @property
    def with_any_share(self) -> float:
        """Share of annotations that mention Any, from 0 to 1."""
        return len(self.with_any) / self.annotations if self.annotations else 0.0

    @property
    def docstring_share(self) -> float:
        """Share of public definitions with a docstring, from 0 to 1; 1 if there are none."""
        public = self.documented + len(self.undocumented)
        return self.documented / public if public else 1.0


# --- reading ---------------------------------------------------------------------------------------


def read_modules(root: Path) -> list[Module]:
    """Parse all Python files below a folder, in the order of their paths."""
    modules = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[0] if len(parts) > 1 else ROOT_PACKAGE
        dotted = [root.name, *(parts[:-1] if parts[-1] == "__init__" else parts)]
        tree = ast.parse(path.read_text())
        modules.append(Module(path, ".".join(dotted), package, tree, list(ast.walk(tree))))
    return modules


def definitions(module: Module) -> Iterator[tuple[str, DefinitionNode, bool]]:
    """Yield (qualified name, node, whether it is inside a function) of every class and function."""

    def visit(
        node: ast.AST, prefix: str, in_function: bool
    ) -> Iterator[tuple[str, DefinitionNode, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, DefinitionNode):
                name = prefix + child.name
                yield name, child, in_function
                is_function = not isinstance(child, ast.ClassDef)
                yield from visit(child, f"{name}.", in_function or is_function)
            elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                yield from visit(child, prefix, in_function)

    yield from visit(module.tree, "", False)


# --- single measures -------------------------------------------------------------------------------


def line_count(function: FunctionNode) -> int:
    """Return the number of lines from `def` to the end."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def complexity(function: FunctionNode) -> int:
    """Return the cyclomatic complexity, as ruff's C901 has it."""
    return 1 + _decisions(function.body)


def _decisions(statements: list[ast.stmt]) -> int:
    count = 0
    for statement in statements:
        if isinstance(statement, (ast.If, ast.For, ast.AsyncFor, ast.While)):
            # An `elif` is an `if` in the `else` branch, and counts there.
            count += 1 + _decisions(statement.body) + _decisions(statement.orelse)
        elif isinstance(statement, (ast.Try, ast.TryStar)):
            count += len(statement.handlers) + bool(statement.orelse)
            for handler in statement.handlers:
                count += _decisions(handler.body)
            count += sum(map(_decisions, (statement.body, statement.orelse, statement.finalbody)))
        elif isinstance(statement, ast.Match):
            cases = statement.cases
            last = cases[-1]
            catches_all = last.guard is None and _matches_all(last.pattern)
            count += len(cases) - catches_all
            count += sum(_decisions(case.body) for case in cases)
        elif isinstance(statement, FunctionNode):
            count += 1 + _decisions(statement.body)
        elif isinstance(statement, (ast.With, ast.AsyncWith, ast.ClassDef)):
            count += _decisions(statement.body)
    return count


def _matches_all(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def annotations_of(module: Module) -> Iterator[ast.expr]:
    """Yield the annotations of parameters, returns and variables, those in quotes without them."""
    for annotation in _annotations(module.nodes):
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            yield ast.copy_location(ast.parse(annotation.value, mode="eval").body, annotation)
        else:
            yield annotation


def _annotations(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, FunctionNode):
            arguments = node.args
            for argument in (
                *(*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs),
                *(arguments.vararg, arguments.kwarg),
            ):
                if argument is not None and argument.annotation is not None:
                    yield argument.annotation
            if node.returns is not None:
                yield node.returns
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def aliases_of_any(modules: list[Module]) -> dict[str, set[str]]:
    """Return, by module, the names that mean Any in it: `Any`, aliases at its top level, imported aliases."""
    names = {module.name: {"Any"} for module in modules}
    for module in modules:
        for node in module.tree.body:
            if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                continue
            if not isinstance(node.value, (ast.Name, ast.Attribute, ast.BinOp)):
                continue  # no type, or one that only mentions Any
            if amounts_to_any(node.value, names[module.name]):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                aliases = {target.id for target in targets if isinstance(target, ast.Name)}
                names[module.name] |= aliases
    for module in modules:
        for import_ in module.nodes:
            if isinstance(import_, ast.ImportFrom) and import_.module in names:
                names[module.name] |= {
                    alias.asname or alias.name
                    for alias in import_.names
                    if alias.name in names[import_.module]
                }
    return names


def amounts_to_any(annotation: ast.expr, names: set[str]) -> bool:
    """Return True for Any, for a union with Any and for `Optional[Any]`."""
    match annotation:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr="Any"):
            return True
        case ast.BinOp(op=ast.BitOr(), left=one, right=other):
            return amounts_to_any(one, names) or amounts_to_any(other, names)
        case ast.Subscript(value=ast.Name(id="Optional" | "Union"), slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return any(amounts_to_any(part, names) for part in parts)
    return False


def mentions_any(annotation: ast.expr, names: set[str]) -> bool:
    """Return True if Any is anywhere in the annotation."""
    return any(
        amounts_to_any(node, names)
        for node in ast.walk(annotation)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


# --- docstrings ------------------------------------------------------------------------------------


class Classes:
    """All classes below the root, to find a method's docstring in base classes."""

    def __init__(self, modules: list[Module]) -> None:
        self._nodes: dict[
            str, ast.ClassDef
        ] = {}  # by dotted name, such as millpond.driver.clock.Clock
        self._imports: dict[str, dict[str, str]] = {}  # module -> name in it -> dotted name
        for module in modules:
            for name, node, _ in definitions(module):
                if isinstance(node, ast.ClassDef):
                    self._nodes[f"{module.name}.{name}"] = node
            self._imports[module.name] = {
                alias.asname or alias.name: f"{node.module}.{alias.name}"
                for node in module.nodes
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
            }

    def inherits_docstring(self, module: str, class_name: str, method: str) -> bool:
        """Return True if a base class of the class, near or far, documents the method."""
        node = self._nodes[f"{module}.{class_name}"]
        return any(
            self._documents(base, method, {f"{module}.{class_name}"})
            for base in self._bases(module, class_name, node)
        )

    def _documents(self, dotted: str, method: str, seen: set[str]) -> bool:
        if dotted in seen:
            return False
        seen.add(dotted)
        node = self._nodes[dotted]
        for child in node.body:
            if not isinstance(child, FunctionNode) or child.name != method:
                continue
            if ast.get_docstring(child) is not None:
                return True
        module, class_name = self._split(dotted)
        bases = self._bases(module, class_name, node)
        return any(self._documents(base, method, seen) for base in bases)

    def _bases(self, module: str, class_name: str, node: ast.ClassDef) -> Iterator[str]:
        scope = class_name.rpartition(".")[0]
        for base in node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            found = self._find(module, scope, ast.unparse(expression))
            if found is not None:
                yield found

    def _find(self, module: str, scope: str, name: str) -> str | None:
        """Return the dotted name of the class that `name` means in a module, or in a class in it."""
        inner = f"{module}.{scope}.{name}" if scope else ""
        if inner in self._nodes:
            return inner
        dotted = f"{module}.{name}"
        first, dot, rest = name.partition(".")
        seen: set[str] = set()
        while dotted not in self._nodes:
            imported = self._imports.get(module, {}).get(first)
            if imported is None or imported in seen:
                return None
            seen.add(imported)
            # Either the module that defines it, or a package that imports it in turn.
            dotted = imported + dot + rest
            module, _, first = imported.rpartition(".")
        return dotted

    def _split(self, dotted: str) -> tuple[str, str]:
        module = dotted.rpartition(".")[0]
        while module not in self._imports:
            module = module.rpartition(".")[0]
        return module, dotted.removeprefix(f"{module}.")


def needs_docstring(name: str, node: DefinitionNode) -> bool:
    """Return True for public names, except for setters and overloads."""
    if any(part.startswith("_") for part in name.split(".")):
        return False
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return not any(
        decorator.endswith((".setter", ".deleter")) or decorator.split(".")[-1] == "overload"
        for decorator in decorators
    )


# --- all of it -------------------------------------------------------------------------------------


def measure(root: Path) -> dict[str, Count]:
    """Count everything below a folder; return the counts by package, in the order of names."""
    modules = read_modules(root)
    classes = Classes(modules)
    aliases = aliases_of_any(modules)
    counts: dict[str, Count] = {}
    for module in modules:
        count = counts.setdefault(module.package, Count())
        count.modules += 1
        _measure_annotations(module, root, aliases[module.name], count)
        _measure_definitions(module, root, classes, count)
    for folder in sorted({module.path.parent for module in modules}):
        size = len(list(folder.glob("*.py")))
        if size > MOST_MODULES:
            inside = folder.relative_to(root)
            package = inside.parts[0] if inside.parts else ROOT_PACKAGE
            counts[package].crowded.append(f"{inside.as_posix()}: {size} modules")
    return dict(sorted(counts.items()))


def total(counts: dict[str, Count]) -> Count:
    """Return the sum over all packages."""
    everything = Count()
    for count in counts.values():
        everything.add(count)
    return everything


def _measure_annotations(module: Module, root: Path, names: set[str], count: Count) -> None:
    for annotation in annotations_of(module):
        count.annotations += 1
        if not mentions_any(annotation, names):
            continue
        place = f"{module.path.relative_to(root)}:{annotation.lineno} {ast.unparse(annotation)}"
        count.with_any.append(place)
        if amounts_to_any(annotation, {"Any"}):
            count.any.append(place)


def _measure_definitions(module: Module, root: Path, classes: Classes, count: Count) -> None:
    is_private = any(part.startswith("_") for part in module.name.split("."))
    for name, node, in_function in definitions(module):
        place = f"{module.path.relative_to(root)}:{node.lineno} {name}"
        if isinstance(node, FunctionNode):
            if (lines := line_count(node)) > LONGEST_FUNCTION:
                count.long.append(f"{place}: {lines} lines")
            if (decisions := complexity(node)) > HIGHEST_COMPLEXITY:
                count.complex.append(f"{place}: {decisions}")
        if is_private or in_function or not needs_docstring(name, node):
            continue
        class_name, _, method = name.rpartition(".")
        if ast.get_docstring(node) is not None:
            count.documented += 1
        elif not class_name or not classes.inherits_docstring(module.name, class_name, method):
            count.undocumented.append(place)


def _row(package: str, count: Count) -> list[str]:
    return [
        package,
        str(count.modules),
        str(len(count.long)),
        str(len(count.complex)),
        f"{count.any_share:.1%}",
        f"{count.with_any_share:.1%}",
        f"{count.docstring_share:.1%}",
        str(len(count.crowded)),
    ]


def table(counts: dict[str, Count]) -> str:
    """Return a table with a line per package and a total."""
    rows = [["package", *COLUMNS]]
    rows += [_row(package, count) for package, count in counts.items()]
    rows.append(_row("total", total(counts)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


PLACES = {
    "long": "long",
    "complex": "complex",
    "Any": "any",
    "with-Any": "with_any",
    "docstrings": "undocumented",
    "crowded": "crowded",
}


def main() -> None:
    """Print the table, or the places behind one of its columns."""
    parser = argparse.ArgumentParser(description="Measure how the source is kept.")
    default = Path(__file__).resolve().parent.parent / "src" / "millpond"
    parser.add_argument("root", nargs="?", type=Path, default=default, help="src/millpond")
    parser.add_argument("--list", choices=PLACES, help="print the places, not the table")
    arguments = parser.parse_args()
    if not arguments.root.is_dir():
        parser.error(f"{arguments.root} is not a folder")
    counts = measure(arguments.root.resolve())
    if arguments.list is None:
        print(table(counts))
    else:
        print("\n".join(getattr(total(counts), PLACES[arguments.list])))


if __name__ == "__main__":
    main()
