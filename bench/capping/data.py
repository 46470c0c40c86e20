"""The input of the capping benchmark: CSV files of views (user, ad, milliseconds).

Views lie evenly over ten days, up to half a minute out of order. 200,000 users and 40 ads: of half a
million views in a row, 97 % are of different (user, ad) pairs.
"""

from __future__ import annotations

from pathlib import Path

import numpy

DAYS = 10
ADS = 40
JITTER_MS = 30_000
START_MS = 1_700_000_000_000
FILES = 2


def write_views(folder: Path, views: int, users: int, seed: int = 7) -> list[Path]:
    """The files, made if they are not there; view i is in file i mod 2."""
    paths = [folder / f"views-{views}-{users}-{seed}-{part}.csv" for part in range(FILES)]
    if all(path.exists() for path in paths):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    chance = numpy.random.default_rng(seed)
    who = chance.integers(0, users, views)
    what = chance.integers(0, ADS, views)
    when = START_MS + numpy.arange(views) * (DAYS * 86_400_000) // views
    when = when + chance.integers(0, JITTER_MS, views)
    for part, path in enumerate(paths):
        unfinished = path.with_suffix(".part")
        with unfinished.open("w", encoding="ascii") as file:
            columns = (column[part::FILES].tolist() for column in (who, what, when))
            for user, ad, time_ms in zip(*columns, strict=True):
                file.write(f"user-{user:06d},ad-{ad:02d},{time_ms}\n")
        unfinished.rename(path)
    return paths
