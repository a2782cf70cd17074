"""Compares a compiled record walk with the interpreted one on valid, damaged and arbitrary records.

    python -m tests.property.walk_inputs MODULE INTERPRETED SEED COUNT

A program of its own, because the sanitizers need their own process.  The same seed gives the same inputs.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from kctl.records.build import encode_records
from kctl.records.header import Record

SIZES = (0, 1, 30, 63, 64, 65, 300)
DELTAS = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 40, -(1 << 62), (1 << 63) - 1)
COUNTS = (0, 1, 2, -1, 1 << 20, (1 << 62) - 1, -(1 << 62))
LONG_NUMBERS = (b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 10 + b"\x01", b"\xfe\xff\xff\xff\x0f")

WALKS: dict[str, Callable[[Any, bytes, int], Any]] = {
    "check_records": lambda module, region, count: list(module.check_records(region, count)),
    "locate_records": lambda module, region, count: list(module.locate_records(region, [(0, len(region), count)])),
    "locate_records in two regions": lambda module, region, count: list(
        module.locate_records(region, [(0, len(region) // 2, count), (len(region) // 2, len(region), count)])
    ),
    "read_records": lambda module, region, count: list(
        module.read_records(region, 0, count, 1 << 40, 1 << 41, has_append_time=False)
    ),
    "read_records after an append": lambda module, region, count: list(
        module.read_records(region, 0, count, 0, -1, has_append_time=True)
    ),
    "walk_keys": lambda module, region, count: [list(part) for part in module.walk_keys(region, count, len)],
    "is_tombstone": lambda module, region, count: module.is_tombstone(region, min(max(count, 0), 1 << 20)),
    "largest_timestamp_delta": lambda module, region, count: module.largest_timestamp_delta(region, [0]),
}


def interpreted(path: str) -> ModuleType:
    """The walk as CPython interprets its source, whether or not it was compiled."""
    spec = importlib.util.spec_from_loader("interpreted_walk", SourceFileLoader("interpreted_walk", path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert str(module.__file__).endswith(".py")
    return module


def outcome(module: ModuleType, name: str, region: bytes, count: int) -> object:
    """What a walk returns, or the type and text of its error."""
    try:
        return WALKS[name](module, region, count)
    except (IndexError, ValueError) as error:
        return type(error), str(error)


def inputs(seed: int, count: int) -> Iterator[tuple[bytes, int]]:
    """Records sections with a number of records: a third each of valid, damaged and arbitrary ones."""
    chance = random.Random(seed)
    for number in range(count):
        records = [_record(chance) for _ in range(chance.randrange(1, 6))]
        region = bytearray(encode_records(enumerate(records), 0))
        stated = len(records)
        if number % 3 == 1:
            _damage(region, chance)
            stated = chance.choice((stated, stated, stated, stated + 1, *COUNTS))
        elif number % 3 == 2:
            region = bytearray(chance.randbytes(chance.randrange(40)))
            stated = chance.choice((1, 1, 2, *COUNTS))
        yield bytes(region), stated


def _record(chance: random.Random) -> Record:
    def field() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice(SIZES))

    headers = tuple(("h" * chance.randrange(3), field()) for _ in range(chance.choice((0, 0, 0, 1, 3))))
    return Record(0, chance.choice(DELTAS), field(), field(), headers)


def _damage(region: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(region))
        match chance.randrange(4):
            case 0:
                region[at] = chance.randrange(256)
            case 1:
                region[at : at + 1] = chance.choice(LONG_NUMBERS)
            case 2:
                del region[at + 1 :]
            case _:
                region[at] = chance.choice((0x00, 0x01, 0x7F, 0x80, 0xFF))


def main() -> None:
    name, path, seed, count = sys.argv[1:]
    compiled, reference = importlib.import_module(name), interpreted(path)
    assert not str(compiled.__file__).endswith(".py"), compiled.__file__
    accepted = 0
    for region, stated in inputs(int(seed), int(count)):
        for walk in WALKS:
            found, expected = outcome(compiled, walk, region, stated), outcome(reference, walk, region, stated)
            if found != expected:
                raise SystemExit(f"{walk} of {region.hex()} with {stated} records: {found}, interpreted {expected}")
        accepted += not isinstance(outcome(reference, "check_records", region, stated), tuple)
    sys.stdout.write(f"{count} inputs, {accepted} accepted\n")


if __name__ == "__main__":
    main()
