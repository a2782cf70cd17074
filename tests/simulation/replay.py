"""`./dev sim --seed N` plays one simulated bad day again, `./dev sim --minutes M` fresh ones until the time is up."""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
import traceback

from tests.simulation.test_cluster import run_bad_day


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed that a failure printed")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to look for a failure (default: 1)")
    options = parser.parse_args()
    # Brokers that are killed by the dozen have much to say; the days look at what is wrong by themselves.
    logging.getLogger().addHandler(logging.NullHandler())
    if options.seed is not None:
        return 0 if _plays_well(options.seed) else 1
    end = time.monotonic() + options.minutes * 60
    played = 0
    while time.monotonic() < end:
        seed = secrets.randbelow(1 << 32)
        if not _plays_well(seed):
            return 1
        played += 1
    sys.stdout.write(f"{played} days, nothing that was acknowledged is missing\n")
    return 0


def _plays_well(seed: int) -> bool:
    try:
        trace = run_bad_day(seed)
    except Exception:
        traceback.print_exc()
        sys.stdout.write(f"seed {seed} fails; again with: ./dev sim --seed {seed}\n")
        return False
    sys.stdout.write(f"seed {seed}: {trace}\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
