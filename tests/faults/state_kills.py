"""Kills exports of the current state by key at random times and steps, and compares the tables with the topics.

    python -m tests.faults.state_kills --table delta --seeds 10

As tests.faults.export_kills, for `kctl export --mode upsert`: records have keys, and some delete the row of theirs.
After the last round an export runs to its end, and DuckDB must read exactly the last record of each key that has a
value, and no key twice.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb

from tests.faults.export_kills import PARTITIONS, TABLES, Steps, Trial
from tests.peers.kctl_broker import kctl_broker

KEYS = 300
OPTIONS = ("--mode", "upsert", "--key", "string", "--value", "string", "--target-file-size", "2k")
"""With so small files that there are many buckets, and some are divided in each round."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--table", choices=TABLES, default="parquet")
    options.add_argument("--first-seed", type=int, default=1)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--rounds", type=int, default=6, help="exports of each seed")
    options.add_argument("--no-steps", action="store_true", help="kill at random times only")
    given = options.parse_args()
    if not given.no_steps and not shutil.which("strace"):
        options.error("strace is not on the PATH: install it, or give --no-steps")
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="kctl-kills-") as name, kctl_broker(Path(name) / "broker") as broker:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            trial = StateTrial(
                broker.bootstrap,
                Path(name) / f"lake-{seed}",
                seed,
                "local",
                given.table,
                steps=None if given.no_steps else steps,
            )
            problem = trial.run(given.rounds)
            sys.stdout.write(f"seed {seed}: {problem or 'exact'}; {trial.summary()}\n")
            sys.stdout.flush()
            if problem:
                return 1
    for step, count in steps.killed_before.most_common():
        sys.stdout.write(f"{count:5} before {step}\n")
    return 0


class StateTrial(Trial):
    """The exports of one seed."""

    options = OPTIONS

    def run(self, rounds: int) -> str:
        """What went wrong; empty if nothing did."""
        self._produce(self._transactions())
        self._export()
        for number in range(rounds):
            self._produce(self._transactions())
            producing = threading.Thread(target=self._produce, args=(self._transactions(),))
            producing.start()
            self._export_killed(number)
            producing.join()
        self._export()
        return self._difference()

    def summary(self) -> str:
        """What happened."""
        return f"{self.counts()}, {len(self._state())} keys of {len(self._topic.rows)} records"

    def _entries(self, count: int) -> list[dict[str, Any]]:
        numbers = [self._random.randrange(KEYS) for _ in range(count)]
        return [
            {
                "key": b"%d" % number,
                "value": None if self._random.random() < 0.3 else b"%d" % self._random.randrange(1 << 60),
                "partition": number % PARTITIONS,
            }
            for number in numbers
        ]

    def _state(self) -> dict[str, str]:
        """The last values of keys, without those that are deleted."""
        rows: dict[str, str] = {}
        for _, _, key, value, *_ in sorted(self._topic.rows, key=lambda row: row[:2]):
            assert key is not None
            rows.pop(key.decode(), None)
            if value is not None:
                rows[key.decode()] = value.decode()
        return rows

    def _difference(self) -> str:
        with duckdb.connect() as connection:
            connection.execute("set threads = 1")
            rows = connection.execute("select key, value from read_parquet(?)", [self._lake.files()]).fetchall()
        found, expected = dict(rows), self._state()
        if len(found) < len(rows):
            return f"{len(rows) - len(found)} keys are there twice"
        different = [key for key in {*found, *expected} if found.get(key) != expected.get(key)]
        return f"different: {sorted(different)[:5]}" if different else ""


if __name__ == "__main__":
    sys.exit(main())
