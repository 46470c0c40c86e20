"""The dashboard's files (O7): complete, offline, and fit for a strict Content-Security-Policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millpond.dashboard import static_folder

SCRIPTS = sorted(static_folder().glob("*.js"))


def name(path: Path) -> str:
    return path.name


def test_all_that_the_page_refers_to_is_there() -> None:
    page = (static_folder() / "index.html").read_text()
    files = re.findall(r'(?:src|href)="static/([^"]+)"', page)
    assert {"main.js", "style.css", "icon.svg"} <= set(files)
    assert [one for one in files if not (static_folder() / one).is_file()] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_modules_only_import_files_of_the_folder(path: Path) -> None:
    for module in re.findall(r'from "([^"]+)"', path.read_text()):
        assert module.startswith("./"), module
        assert (static_folder() / module).is_file(), module


@pytest.mark.parametrize("path", sorted(static_folder().iterdir()), ids=name)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    """The names of XML are not addresses that anybody asks."""
    addresses = set(re.findall(r"https?://[^\s\"')]+|@import\b", path.read_text()))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_page_has_no_inline_code_or_style() -> None:
    """`default-src 'self'` would refuse it."""
    page = (static_folder() / "index.html").read_text()
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_no_text_becomes_html(path: Path) -> None:
    """Names of jobs are what users wrote: text nodes only."""
    found = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function",
        path.read_text(),
    )
    assert found == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
