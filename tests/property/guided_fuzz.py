"""Fuzzes compiled modules of kctl.records, guided by the edges of their C code that an input reaches.

    python -m tests.property.guided_fuzz SECONDS SEED CURRENT MODULE SOURCE [MODULE SOURCE ...]

Inputs are changed at random.  Those that reach an edge of the code, or reach it a number of times, that no earlier one
did, are kept and changed further, as AFL does.  The interpreted source must give the same result for each of them, and
for a part of the others.  The file CURRENT has the input of the call that a sanitizer has ended.

The modules are built with `-fsanitize-coverage=trace-pc`, and EDGES is preloaded.  `python -m
tests.property.fuzz_compiled` does both, and runs for as long as it is told.
"""

from __future__ import annotations

import ctypes
import importlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kctl.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION
from tests.property.fetch_frames import usual_fetch
from tests.property.produce_frames import sealed, usual_frame
from tests.property.walk_inputs import COMPARED, COUNTS, LONG_NUMBERS, answered, inputs, interpreted, outcome_of, read

EDGES = r"""
#include <stdint.h>
#include <string.h>
#define SIZE 65536
static uint8_t hits[SIZE], seen[SIZE];
static uintptr_t before;
void __sanitizer_cov_trace_pc(void) {
    uintptr_t at = (uintptr_t)__builtin_return_address(0);
    at = (at >> 2) ^ (at >> 18);
    uint16_t slot = (uint16_t)(at ^ before);
    if (hits[slot] < 255) hits[slot]++;
    before = at >> 1;
}
void edges_begin(void) { memset(hits, 0, SIZE); before = 0; }
static uint8_t times(uint8_t n) {
    return n < 4 ? 1 << (n - 1) : n < 8 ? 8 : n < 16 ? 16 : n < 32 ? 32 : n < 128 ? 64 : 128;
}
int edges_new(void) {
    int count = 0;
    for (int slot = 0; slot < SIZE; slot++)
        if (hits[slot] && (times(hits[slot]) & ~seen[slot])) { seen[slot] |= times(hits[slot]); count++; }
    return count;
}
"""
"""Counts how often an input takes each edge; `edges_new` returns how many of these numbers no input had before."""
FIRST_INPUTS = 60
COMPARED_ONE_OF = 20
FRAMES_EACH = 8
"""Requests are what strangers send."""
SIZE_MAX = 4096
ODD = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (0, 1, -1, 61, 62, 1 << 15, (1 << 15) - 1, (1 << 31) - 1, -(1 << 31), 1 << 61, (1 << 63) - 1, -(1 << 63))
BATCH_AT = range(20, 80)
"""Where the first batch of a Produce request may begin."""
MAGIC = 2

Work = Callable[[Any, bytes, int], Any]


class Target(NamedTuple):
    """A function of a module, compiled and interpreted, and the inputs that have reached something new."""

    name: str
    work: Work
    compiled: ModuleType
    reference: ModuleType
    kept: list[tuple[bytes, int]]
    is_frame: bool = False


def changed(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """One to eight changes of an input, with parts of another one."""
    region = bytearray(data)
    for _ in range(1 << chance.randrange(4)):
        at = chance.randrange(len(region) + 1)
        match chance.randrange(8):
            case 0:
                region[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                region[at : at + 1] = bytes([chance.choice(ODD)])
            case 2:
                region[at : at + 1] = chance.choice(LONG_NUMBERS)
            case 3:
                size = chance.choice((2, 4, 8))
                number = chance.choice(NUMBERS) % (1 << 8 * size)
                region[at : at + size] = number.to_bytes(size, "big")
            case 4:
                del region[at : at + chance.choice((1, 1, 2, 8, len(region)))]
            case 5:
                begin = chance.randrange(len(other) + 1)
                region[at:at] = other[begin : begin + chance.randrange(1, 64)]
            case 6:
                region[at:] = other[at:]
            case _:
                if at < len(region):
                    region[at] ^= 1 << chance.randrange(8)
    return bytes(region[:SIZE_MAX])


def with_checksum(frame: bytes) -> bytes:
    """The frame with the checksum of its first batch: otherwise no change of a batch is read further."""
    for at in BATCH_AT:
        if len(frame) <= at + HEADER_SIZE:
            break
        size = LOG_OVERHEAD + int.from_bytes(frame[at + 8 : at + LOG_OVERHEAD], "big", signed=True)
        if frame[at + MAGIC_POSITION] == MAGIC and HEADER_SIZE <= size <= len(frame) - at:
            return sealed(frame, at, size)
    return frame


def targets(modules: list[tuple[ModuleType, ModuleType, str]], chance: random.Random, seed: int) -> list[Target]:
    """Every function of the modules, with usual inputs."""
    found: list[Target] = []
    for compiled, reference, name in modules:
        if name == "produce_frame":
            frames = [(usual_frame(chance, is_short=number % 3 > 0).content, 0) for number in range(FIRST_INPUTS)]
            found.append(
                Target(name, lambda module, data, _: answered(module, data), compiled, reference, frames, True)
            )
        elif name == "fetch_frame":
            frames = [(usual_fetch(chance), 0) for _ in range(FIRST_INPUTS)]
            found.append(Target(name, read, compiled, reference, frames, True))
        else:
            works: dict[str, Work] = COMPARED[name][0]
            found += [
                Target(label, work, compiled, reference, list(inputs(seed, FIRST_INPUTS)))
                for label, work in works.items()
            ]
    return found


class Fuzzer:
    """Tries inputs on targets."""

    def __init__(self, found: list[Target], chance: random.Random, current: Path) -> None:
        self._chance = chance
        self._targets = found
        self._current = current
        library = ctypes.CDLL(None)  # It is preloaded.
        self._begin, self._new = library.edges_begin, library.edges_new
        self.tried = self.kept = 0

    def run(self, seconds: float) -> None:
        """Try inputs for so long.  Raises SystemExit if compiled and interpreted code differ."""
        for target in self._targets:
            for data, count in tuple(target.kept):
                self._try(target, data, count)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for target in self._targets:
                for _ in range(FRAMES_EACH if target.is_frame else 1):
                    self._try_changed(target)

    def _try_changed(self, target: Target) -> None:
        chance, kept = self._chance, target.kept
        # Half of the time one of the last ones: they have reached what the others have not.
        data, count = (
            kept[-chance.randrange(1, min(len(kept), 30) + 1)] if chance.random() < 0.5 else chance.choice(kept)
        )
        data = changed(chance, data, chance.choice(kept)[0])
        if target.is_frame and chance.random() < 0.7:
            data = with_checksum(data)
        if chance.random() < 0.1:
            count = chance.choice(COUNTS)
        if self._try(target, data, count):
            kept.append((data, count))
            self.kept += 1

    def _try(self, target: Target, data: bytes, count: int) -> bool:
        self._current.write_text(f"{target.name} of {data.hex()} with {count}\n")
        self._begin()
        result = outcome_of(target.work, target.compiled, data, count)
        is_new = bool(self._new())
        self.tried += 1
        # A refusal is one of few results, and what a request that is read has in it one of many.
        if is_new or (target.is_frame and result is not None) or not self.tried % COMPARED_ONE_OF:
            expected = outcome_of(target.work, target.reference, data, count)
            if result != expected:
                raise SystemExit(f"{target.name} of {data.hex()} with {count}: {result}, interpreted {expected}")
        return is_new


def main() -> None:
    seconds, seed, current, *names = sys.argv[1:]
    modules = [
        (importlib.import_module(name), interpreted(path), Path(path).stem)
        for name, path in zip(names[::2], names[1::2], strict=True)
    ]
    for compiled, _, _ in modules:
        assert not str(compiled.__file__).endswith(".py"), compiled.__file__
    chance = random.Random(int(seed))
    fuzzer = Fuzzer(targets(modules, chance, int(seed)), chance, Path(current))
    fuzzer.run(float(seconds))
    sys.stdout.write(f"{fuzzer.tried} inputs, {fuzzer.kept} kept\n")


if __name__ == "__main__":
    main()
