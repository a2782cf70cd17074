"""`./dev sim --seed N` plays simulated bad days again, `./dev sim --minutes M` fresh ones until the time is up.

There is one of each kind per seed: of a cluster that is written to, of transactions, of groups, of kctl's own readers
in a group.  `--of` picks one kind, and `--fault` plays its seed with one kind of trouble instead of a mixture.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from tests.simulation import test_group_readers, test_groups, test_transactions
from tests.simulation.mishaps import FAULTS, Fault, bad_day
from tests.simulation.test_cluster import run_bad_day

FAULT_BY_NAME = {fault.__name__: fault for fault in FAULTS}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed that a failure printed")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to look for a failure (default: 1)")
    parser.add_argument("--of", choices=("cluster", "transactions", "groups", "readers"), help="(default: all)")
    parser.add_argument("--fault", choices=[*FAULT_BY_NAME, "all"], default=bad_day.__name__, help="not of a cluster")
    options = parser.parse_args()
    # Brokers that are killed by the dozen have much to say; the days look at what is wrong by themselves.
    logging.getLogger().addHandler(logging.NullHandler())
    days = _days(options.of, FAULTS if options.fault == "all" else (FAULT_BY_NAME[options.fault],))
    if options.seed is not None:
        return 0 if all(_plays_well(name, play, options.seed) for name, play in days.items()) else 1
    end = time.monotonic() + options.minutes * 60
    played = 0
    while time.monotonic() < end:
        seed = secrets.randbelow(1 << 32)
        for name, play in days.items():
            if not _plays_well(name, play, seed):
                return 1
            played += 1
    sys.stdout.write(f"{played} days, and everybody kept their word\n")
    return 0


def _days(kind: str | None, faults: tuple[Fault, ...]) -> dict[str, Callable[[int], str]]:
    """What is to be played, by the arguments that play it again."""
    days: dict[str, Callable[[int], str]] = {}
    if kind in {None, "cluster"}:
        days["--of cluster"] = run_bad_day
    runs = {"transactions": test_transactions.run, "groups": test_groups.run, "readers": test_group_readers.run}
    for name, run in runs.items():
        if kind in {None, name}:
            days |= {f"--of {name} --fault {fault.__name__}": partial(run, fault) for fault in faults}
    return days


def _plays_well(name: str, play: Callable[[int], str], seed: int) -> bool:
    try:
        trace = play(seed)
    except Exception:
        traceback.print_exc()
        sys.stdout.write(f"seed {seed} fails; again with: ./dev sim --seed {seed} {name}\n")
        return False
    sys.stdout.write(f"seed {seed} {name}: {trace}\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
