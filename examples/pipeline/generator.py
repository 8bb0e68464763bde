"""A shop's events: orders and what becomes of them, payments, clicks. The same seed makes the same shop."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PAGES = {"home": 0.45, "search": 0.3, "product": 0.18, "checkout": 0.07}
SLOWNESS_MS = {"home": 40, "search": 120, "product": 80, "checkout": 260}
ITEMS = ("lamp", "chair", "table", "rug", "shelf", "mirror")


class Event(NamedTuple):
    topic: str
    time_ms: int
    key: str
    value: dict[str, object]


def events(orders: int, start_ms: int, minutes: int, seed: int = 1) -> list[Event]:
    """In the order of their times, as a topic would have them."""
    chance = random.Random(seed)
    span_ms = minutes * 60_000
    found: list[Event] = []
    for number in range(orders):
        found += _order(chance, f"o-{number:06d}", start_ms + _busy(chance) * span_ms)
    for _ in range(orders * 4):
        found.append(_click(chance, start_ms + _busy(chance) * span_ms))
    return sorted(found, key=lambda event: event.time_ms)


def _busy(chance: random.Random) -> float:
    """A moment of the span, more likely in its second third: lunch."""
    while True:
        moment = chance.random()
        if chance.random() < 0.4 + 0.6 * math.exp(-(((moment - 0.5) / 0.18) ** 2)):
            return moment


def _order(chance: random.Random, name: str, at_ms: float) -> Iterator[Event]:
    amount = round(chance.lognormvariate(3.6, 0.7), 2)
    item, customer = chance.choice(ITEMS), f"c-{int(chance.paretovariate(1.1)) % 5000:04d}"
    body = {"order": name, "customer": customer, "item": item, "amount": amount}
    yield Event("orders", int(at_ms), name, {**body, "status": "placed", "time": int(at_ms)})
    if chance.random() < 0.06:  # never paid
        at_ms += chance.uniform(20_000, 120_000)
        yield Event("orders", int(at_ms), name, {**body, "status": "cancelled", "time": int(at_ms)})
        return
    at_ms += chance.expovariate(1 / 25_000)
    paid = {"order": name, "amount": amount, "method": chance.choice(("card", "card", "transfer")), "time": int(at_ms)}
    yield Event("payments", int(at_ms), name, paid)
    at_ms += chance.uniform(5_000, 60_000)
    yield Event("orders", int(at_ms), name, {**body, "status": "shipped", "time": int(at_ms)})


def _click(chance: random.Random, at_ms: float) -> Event:
    page = chance.choices(list(PAGES), list(PAGES.values()))[0]
    took_ms = round(SLOWNESS_MS[page] * chance.lognormvariate(0, 0.6), 1)
    visitor = f"v-{int(chance.paretovariate(1.05)) % 20_000:05d}"
    return Event("clicks", int(at_ms), visitor, {"page": page, "took_ms": took_ms, "time": int(at_ms)})


def send(servers: str, found: list[Event], partitions: int = 4) -> dict[str, int]:
    """Makes the topics and sends everything, each record with the time of its event. How many went to each topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    kept = {"cleanup.policy": "compact"}
    topics = [NewTopic(name, partitions, 1) for name in ("orders", "payments", "clicks")]
    topics.append(NewTopic("order-state", partitions, 1, config=kept))
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4", "log_level": 0})
    counts: dict[str, int] = {}
    for event in found:
        value = json.dumps(event.value).encode()
        while True:
            try:
                producer.produce(event.topic, value, key=event.key, timestamp=event.time_ms)
                break
            except BufferError:
                producer.poll(0.1)
        counts[event.topic] = counts.get(event.topic, 0) + 1
    producer.flush()
    return counts
