"""kill -9 under load, again and again: ``python -m tests.reliability.kill --rounds 50``.

One idempotent producer lives through all of it. In the end every message that was acknowledged is there, in order and
once, and so are all topics and settings.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time

from tests.reliability.load import Load, verify
from tests.reliability.process import BrokerProcess


def run(rounds: int, seed: int, *, durable: bool = False, quiet: bool = False) -> int:
    """Returns how many messages were acknowledged."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="barnabas-kill-") as folder:
        broker = BrokerProcess(
            folder, *(["--durable"] if durable else []), "--set", "log.segment.bytes=1048576"
        ).start()
        try:
            load = Load(broker.bootstrap_servers)
            load.start()
            for number in range(rounds):
                deadline = time.monotonic() + chance.uniform(0.05, 0.8)
                attempt = 0
                while time.monotonic() < deadline:
                    load.create_topic(f"topic-{number}-{attempt}", str(1000 * number + attempt + 1))
                    attempt += 1
                broker.kill()
                broker.start()
                if not quiet:
                    print(f"killed {number + 1} of {rounds}: {load.promises.count} acknowledged", flush=True)
            promises = load.finish()
            verify(broker.bootstrap_servers, promises)
            broker.stop()
            broker.start()
            verify(broker.bootstrap_servers, promises)
        finally:
            broker.kill()
    return promises.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--durable", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    count = run(options.rounds, options.seed, durable=options.durable)
    print(f"{options.rounds} kills: {count} acknowledged messages are all there, in order, once")


if __name__ == "__main__":
    main()
