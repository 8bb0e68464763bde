"""Hostile requests: valid ones, mutated, then decoded.

    python -m tests.fuzz.requests --count 1000000 --seed 1

Whatever arrives, a reader returns a message or raises DecodeError, and takes no more memory than the bytes
it was given can justify. What a reader accepted must be written again without an error.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from barnabas.wire import codec, header
from barnabas.wire.schema import DecodeError, Message

from .messages import every_version, golden, random_message

Case = tuple[type[Message], int, bytes]

_SPECIAL = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
_REENCODED = 16
"""One in so many accepted messages is written again."""


def flip(raw: bytearray, random: Random) -> None:
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)


def special(raw: bytearray, random: Random) -> None:
    raw[random.randrange(len(raw))] = random.choice(_SPECIAL)


def fill(raw: bytearray, random: Random) -> None:
    start = random.randrange(len(raw))
    stop = min(len(raw), start + random.choice((2, 4, 5, 8)))
    raw[start:stop] = bytes((random.choice(_SPECIAL),)) * (stop - start)


def cut(raw: bytearray, random: Random) -> None:
    del raw[random.randrange(len(raw)) :]


def remove(raw: bytearray, random: Random) -> None:
    start = random.randrange(len(raw))
    del raw[start : start + random.randint(1, 8)]


def insert(raw: bytearray, random: Random) -> None:
    start = random.randrange(len(raw))
    raw[start:start] = random.randbytes(random.randint(1, 8))


def repeat(raw: bytearray, random: Random) -> None:
    start = random.randrange(len(raw))
    raw[start:start] = raw[start : start + random.randint(1, 32)]


MUTATIONS: tuple[Callable[[bytearray, Random], None], ...] = (flip, special, fill, cut, remove, insert, repeat)


def cases(random: Random) -> list[Case]:
    """Requests by Kafka, and one of our own for every version of every message."""
    found = [(row.cls, row.version, row.raw) for row in golden() if row.raw]
    for cls, version in every_version():
        raw = codec.encode_bytes(random_message(cls, version, random), version)
        if raw:
            found.append((cls, version, raw))
    return found


def mutate(raw: bytes, random: Random) -> bytearray:
    changed = bytearray(raw)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if changed:
            random.choice(MUTATIONS)(changed, random)
    return changed


def attempt(cls: type[Message], version: int, raw: bytearray, write_again: bool) -> str:
    """Decodes once. Anything but a message or DecodeError is raised, and is a finding."""
    try:
        message, end = codec.decode(cls, version, raw)
    except DecodeError:
        return "refused"
    if end > len(raw):
        raise AssertionError(f"{cls.__name__} v{version}: read past the end")
    if write_again:
        codec.encode_bytes(message, version)
    return "accepted"


def attempt_header(raw: bytearray) -> str:
    try:
        header.decode_request_header(raw, 0, len(raw))
    except DecodeError:
        return "header refused"
    return "header accepted"


def run(count: int, seed: int) -> Counter[str]:
    """So many decodes. A failure is raised with what is needed to see it again."""
    random = Random(seed)
    pool = cases(random)
    outcomes: Counter[str] = Counter()
    for number in range(count):
        cls, version, raw = random.choice(pool)
        changed = mutate(raw, random)
        try:
            outcomes[attempt(cls, version, changed, number % _REENCODED == 0)] += 1
            if number % 64 == 0:
                outcomes[attempt_header(changed)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, number {number}: {cls.__name__} v{version} {changed.hex()}")
            raise
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start = time.perf_counter()
    outcomes = run(options.count, options.seed)
    spent = time.perf_counter() - start
    print(f"seed {options.seed}: {dict(outcomes)} in {spent:.1f} s, {options.count / spent:,.0f} a second")


if __name__ == "__main__":
    main()
