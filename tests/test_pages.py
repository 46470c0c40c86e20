"""The Markdown pages: what they name exists, their links lead somewhere, and their lines are short."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from millpond.common import options

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "millpond"
PROJECT = ROOT / "pyproject.toml"
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
LONGEST_LINE = 119
TOP_FOLDERS = ("bench", "bin", "deploy", "docs", "examples", "src", "tests", "tools")
PACKAGES = tuple(path.parent.name for path in sorted(SOURCE.glob("*/__init__.py")))
SUFFIXES = r"\.(?:py|md|js|css|html|svg|java|sh|toml)"
# Files that pages speak of and that are not the repository's: programs of users, folders of running jobs.
OF_USERS = {"app.py", "views.py", "tools.zip", "state/dead-letters"}


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def without_examples(text: str) -> str:
    """Leave out the list of PyFlink's own examples, whose paths are not the repository's."""
    return re.sub(r"<!-- examples -->.*?<!-- end -->", "", text, flags=re.DOTALL)


def code_spans(page: str) -> list[str]:
    """Return what stands between single backticks, with line breaks as spaces. Fenced blocks are left out."""
    text = without_examples(text_of(page))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def is_placeholder(name: str) -> bool:
    """Say whether a path has a part to be filled in by the reader, such as NAME in connectors/NAME.py."""
    return any(re.fullmatch(r"[A-Z_]{2,}", part.split(".")[0]) for part in name.split("/"))


def named_paths(page: str) -> set[str]:
    """Return every path or file name of the repository that a page mentions, however it is written.

    In code blocks and prose alike, whatever begins with a folder of the repository counts. Between
    backticks, paths below src/millpond and bare file names count as well.
    """
    tops = "|".join(TOP_FOLDERS)
    names = set(re.findall(rf"(?<![\w/.~:-])(?:{tops})/[\w./-]*\w", text_of(page)))
    packages = "|".join(PACKAGES)
    for span in code_spans(page):
        if re.fullmatch(rf"(?:{packages})/[\w./-]*", span) or re.fullmatch(
            rf"[\w./-]+{SUFFIXES}", span
        ):
            names.add(span)
    return {name for name in names if not is_placeholder(name)} - OF_USERS


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    """A path is written from the root of the repository, or from src/millpond."""
    missing = [
        name
        for name in sorted(named_paths(page))
        if not (ROOT / name).exists() and not (SOURCE / name).exists()
    ]
    assert not missing, f"{page} names what is not there: {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(page)):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_a_page_are_short(page: str) -> None:
    long = [
        number
        for number, line in enumerate(text_of(page).splitlines(), 1)
        if len(line) > LONGEST_LINE
    ]
    assert not long, f"{page} has lines of more than {LONGEST_LINE} characters: {long}"


@pytest.mark.parametrize("page", PAGES)
def test_dotted_names_of_a_page_are_settings_or_can_be_imported(page: str) -> None:
    """Groups of entry points, which pyproject.toml names, are neither."""
    keys = {option.key for option in options.ALL}
    keys |= set(
        re.findall(r'^\[project\.entry-points\."(.+)"\]', PROJECT.read_text(), re.MULTILINE)
    )
    for span in code_spans(page):
        name = re.match(r"(millpond(?:\.[\w-]+)+)(?![\w*:])", span)
        if name is None or any(key.startswith(name.group(1)) for key in keys):
            continue
        assert can_be_imported(name.group(1)), f"{page} names {name.group(1)}"


def can_be_imported(name: str) -> bool:
    """Say whether a dotted name is a module, or something in a module."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return all(hasattr(found, part) for part in parts[length : length + 1])
    return False


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_a_page_names_exist(page: str) -> None:
    for span in code_spans(page):
        if re.fullmatch(r"test_\w+", span):
            assert span in defined_names(ROOT / "tests"), f"{page} names {span}"


def test_methods_that_the_architecture_names_exist() -> None:
    """The page follows a record function by function, so each of them must be one."""
    methods = methods_by_class()
    for page in ("docs/architecture.md", *(page for page in PAGES if "/contributing/" in page)):
        for span in code_spans(page):
            named = re.fullmatch(r"([A-Z]\w+)\.(\w+)(?:\(.*\))?", span)
            if named is not None and not (ROOT / span).exists():
                owner, method = named.groups()
                assert method in methods.get(owner, ()), f"{page} names {span}"


@cache
def methods_by_class() -> dict[str, set[str]]:
    """Return the methods and attributes of every class of Millpond, by the name of the class."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = found.setdefault(node.name, set())
                for item in node.body:
                    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                        names.add(item.name)
                    elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                        names.add(item.target.id)
                    elif isinstance(item, ast.Assign):
                        names |= {t.id for t in item.targets if isinstance(t, ast.Name)}
    return found


@cache
def defined_names(folder: Path) -> set[str]:
    """Return the names of all functions and modules below a folder."""
    names = {path.stem for path in folder.rglob("*.py")}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names.add(node.name)
    return names


def test_every_cited_id_is_listed() -> None:
    """Ids of requirements (E22) and conformance cases (C13), wherever code, tests or pages cite them."""
    listed = set(
        re.findall(
            r"^- \*\*([A-Z]\d+)\*\*",
            text_of("docs/requirements.md") + text_of("docs/conformance.md"),
            flags=re.MULTILINE,
        )
    )
    assert {"E1", "O1", "P1", "C1"} <= listed
    cited = re.compile(r"(?<![\w$#\\])[EOPC]\d{1,2}(?![\w%])")
    sources = [path for top in ("src", "tests", "bench") for path in (ROOT / top).rglob("*.py")]
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*sources, *(ROOT / page for page in PAGES)]
        for name in cited.findall(path.read_text())
        if name not in listed
    }
    assert not unknown, f"ids that no page lists: {sorted(unknown)}"
