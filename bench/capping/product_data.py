"""Views as JSON records in topics of Kafka, for the benchmark of the product.

A user sees four ads of a thousand, again and again: five views of an ad in five days are not rare. Views lie
evenly over ten days, up to half a minute out of order. View i is in partition i mod 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy

DAYS = 10
ADS, ADS_OF_A_USER = 1000, 4
JITTER_MS = 30_000
START_MS = 1_700_000_000_000
PARTITIONS = 2
LIMIT, WINDOW_MS = 5, 5 * 86_400_000
RULES: dict[str, list[dict[str, Any]]] = {
    "default": [{"name": "default", "level": "ad", "limit": LIMIT, "window": "5d"}],
    "full": [
        {"name": "ads", "level": "ad", "limit": LIMIT, "window": "5d"},
        {
            "name": "campaigns",
            "level": "campaign",
            "limit": 4,
            "window": {"calendar": "day", "time_zone": "Europe/Berlin"},
        },
        {
            "name": "advertisers",
            "level": "advertiser",
            "limit": 6,
            "window": "3d",
            "where": {"country": "DE"},
        },
    ],
}
# The same for the peers: level:limit:window[:country], see ProductJob.java.
PEER_RULES = {
    "default": f"ad:{LIMIT}:{WINDOW_MS}",
    "full": f"ad:{LIMIT}:{WINDOW_MS},campaign:4:Europe/Berlin,advertiser:6:{3 * 86_400_000}:DE",
}


def ad_of(user: int, which: int) -> int:
    return (user * 7 + which * 131) % ADS


def record(user: str, ad: int, time_ms: int, country: str) -> bytes:
    return (
        f'{{"user_no":"{user}","da_id":"ad-{ad:04d}","log_time":{time_ms},"campaign_id":"c-{ad // 5:03d}",'
        f'"advertiser_id":"v-{ad // 25:02d}","country":"{country}"}}'
    ).encode()


def views(count: int, users: int, hot_share: float = 0.0, seed: int = 7) -> Iterator[bytes]:
    """`hot_share` of all views are those of one user."""
    chance = numpy.random.default_rng(seed)
    who = chance.integers(1, users, count)
    who[chance.random(count) < hot_share] = 0
    what = chance.integers(0, ADS_OF_A_USER, count)
    when = START_MS + numpy.arange(count) * (DAYS * 86_400_000) // count
    when = when + chance.integers(0, JITTER_MS, count)
    for user, which, time_ms in zip(who.tolist(), what.tolist(), when.tolist(), strict=True):
        country = "DE" if (user + which) % 2 else "FR"
        yield record(f"user-{user:06d}", ad_of(user, which), time_ms, country)


def pairs(count: int) -> Iterator[bytes]:
    """One view for each of so many (user, ad) pairs, within a day."""
    for number in range(count):
        user, which = divmod(number, ADS_OF_A_USER)
        time_ms = START_MS + number * 86_400_000 // count
        yield record(f"user-{user:06d}", ad_of(user, which), time_ms, "DE")


def send(servers: str, topic: str, records: Iterator[bytes]) -> None:
    """To a topic of two partitions that is made for it."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    settings = {"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1 << 18}
    producer = Producer({**settings, "queue.buffering.max.messages": 500_000})
    for number, value in enumerate(records):
        while True:
            try:
                producer.produce(topic, value=value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
