"""Public names have docstrings, and annotations say more than Any. tools/house.py says what counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.house import load_house

SOURCE = Path(__file__).parent.parent / "src" / "millpond"
LEAST_DOCSTRINGS = 0.95  # in every package
MOST_ANY = 0.04  # over all packages


@pytest.fixture(scope="module")
def house() -> Any:
    return load_house()


@pytest.fixture(scope="module")
def counts(house: Any) -> dict[str, Any]:
    return house.measure(SOURCE)  # type: ignore[no-any-return]


def test_public_names_of_each_package_have_docstrings(counts: dict[str, Any]) -> None:
    for package, count in counts.items():
        missing = "\n".join(count.undocumented)
        assert count.docstring_share >= LEAST_DOCSTRINGS, (
            f"{count.docstring_share:.1%} of the public names in {package} have docstrings, and "
            f"{LEAST_DOCSTRINGS:.0%} should; these have none:\n{missing}"
        )


def test_few_annotations_are_any(house: Any, counts: dict[str, Any]) -> None:
    total = house.total(counts)
    assert total.any_share < MOST_ANY, (
        f"{total.any_share:.1%} of the annotations are Any, and less than {MOST_ANY:.0%} should be: "
        "`tools/house.py --list Any` prints them"
    )
