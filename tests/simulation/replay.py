"""`./dev sim --seed N` repeats simulations with faults, `./dev sim --minutes M` runs new ones until the time is up.

Each seed has one simulation of each kind: a cluster with writers, transactions, groups, kctl's own group consumers.
`--of` selects one kind, and `--fault` runs it with one kind of fault instead of random ones.
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
from tests.simulation.faults import FAULTS, Fault, random_faults
from tests.simulation.test_cluster import run_with_random_faults

FAULT_BY_NAME = {fault.__name__: fault for fault in FAULTS}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed that a failure printed")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to look for a failure (default: 1)")
    parser.add_argument("--of", choices=("cluster", "transactions", "groups", "readers"), help="(default: all)")
    parser.add_argument(
        "--fault", choices=[*FAULT_BY_NAME, "all"], default=random_faults.__name__, help="not of a cluster"
    )
    options = parser.parse_args()
    # Killed brokers log a lot; the simulations check their invariants themselves.
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
    sys.stdout.write(f"{played} simulations, no invariant violated\n")
    return 0


def _days(kind: str | None, faults: tuple[Fault, ...]) -> dict[str, Callable[[int], str]]:
    """The simulations to run, by the arguments that repeat them."""
    days: dict[str, Callable[[int], str]] = {}
    if kind in {None, "cluster"}:
        days["--of cluster"] = run_with_random_faults
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
