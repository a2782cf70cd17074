"""Compares the compiled modules of kctl.records with their source on valid, damaged and arbitrary records.

    python -m tests.property.walk_inputs SEED COUNT MODULE SOURCE [MODULE SOURCE ...]

MODULE is the name of a compiled module, SOURCE the path of its source, which is interpreted.  A program of its own,
because the sanitizers need their own process.  The same seed gives the same inputs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from librt.strings import BytesWriter
from librt.vecs import vec
from mypy_extensions import i32, u8

from kctl.records.build import encode_records
from kctl.records.header import Record
from tests.property.fetch_frames import usual_fetch
from tests.property.produce_frames import damaged, frame_of_records, usual_frame

SIZES = (0, 1, 30, 63, 64, 65, 300)
DELTAS = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 40, -(1 << 62), (1 << 63) - 1)
COUNTS = (0, 1, 2, -1, 1 << 20, (1 << 62) - 1, -(1 << 62))
EVERY_TABLE = 19
"""Tables are compared on one of so many inputs: an empty one takes a millisecond in interpreted code."""
LONG_NUMBERS = (
    *(b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 10 + b"\x01", b"\xfe\xff\xff\xff\x0f"),
    *(b"\xff" * 4 + b"\x7f", b"\xff" * 9 + b"\x7f"),  # bits beyond the type
    *(b"\x03", b"\x81\x00"),  # -2, and -1 in two bytes: the sizes of nulls
)

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
    "locate_keys": lambda module, region, count: _located(*module.locate_keys(region, count)),
    "retain_records": lambda module, region, count: module.retain_records(region, 0, _some(count), False),
    "retain_records without tombstones": lambda module, region, count: module.retain_records(
        region, 0, _some(count), True
    ),
}


def _last_and_unknown(module: Any, region: bytes, count: int) -> object:
    """What a table finds that has a few keys within the region, and one that exceeds it if `count` is odd."""
    table = module.KeyTable(
        bytes(range(256)) + b"\xff" * 48, lambda key: bytes(16 - len(key) % 16) + key[: len(key) % 16]
    )
    numbers = [byte * len(region) >> 8 for byte in region[-8:]]
    keys = [(start, end - start) for start, end in pairwise(numbers) if end >= start - 1]
    if count % 2:
        keys.append((len(region) // 2, len(region)))
    half = len(keys) // 2
    for some in (keys[:half], keys):
        table.add(region, vec[i32]([number for key in some for number in key]))
    found = table.are_last(0, table.record_count)
    unknown = table.are_unknown(region, vec[i32]([number for start, size in keys for number in (start, size // 2)]))
    return list(found), list(unknown), table.key_count, table.last_count(0, table.record_count)


TABLES: dict[str, Callable[[Any, bytes, int], Any]] = {"key table": _last_and_unknown}


def _encoded(module: Any, region: bytes, count: int) -> bytes:
    """Two records with numbers, fields and header names from the region."""
    half = len(region) // 2
    first, second = (int.from_bytes(region[at : at + 8], "big", signed=True) for at in (0, half))
    headers = ((region[:half].hex(), None), ("", region))
    records = [(0, (0, first, None, region, ())), (count, (0, second, region[half:], None, headers[: half % 3]))]
    encoded = module.encode_records(records, second)
    assert isinstance(encoded, bytes)
    return encoded


ENCODERS: dict[str, Callable[[Any, bytes, int], Any]] = {"encode_records": _encoded}

LINES: dict[str, Callable[[Any, bytes, int], Any]] = {
    "format_records": lambda module, region, count: _formatted(module, region, count, -(1 << 41), -1, is_recent=True),
    "format_records of 2.8, with contents": lambda module, region, count: _formatted(
        module, region, count, (1 << 62) - 1, (1 << 31) - 1, is_recent=False
    ),
}


def _formatted(
    module: Any, region: bytes, count: int, base_time: int, base_sequence: int, *, is_recent: bool
) -> object:
    return module.format_records(
        region,
        0,
        count,
        1 << 40,
        base_time,
        base_sequence,
        1 << 40,
        has_append_time=not is_recent,
        is_28=not is_recent,
        stamp=b" CreateTime: ",
        common=b" common",
        with_contents=not is_recent,
    )


def _rows(module: Any, region: bytes, count: int, *, kind: int) -> object:
    form = module.RowForm(
        kind,
        start=b"file ",
        end=b"\n",
        null=b"-",
        text_of=lambda data, name: data.hex().encode() + name,
        headers_of=lambda headers: repr(headers).encode(errors="backslashreplace"),
        time_of=lambda minute_ms: b"%d " % minute_ms if minute_ms < 1 << 50 else b"",
    )
    base_time = (1 << 40, -(1 << 41), (1 << 62) - 1)[kind]
    has_append_time = kind == 1
    return module.format_rows(region, 0, count, 1 << 40, base_time, kind - 1, form, has_append_time=has_append_time)


ROWS: dict[str, Callable[[Any, bytes, int], Any]] = {
    f"format_rows, kind {kind}": functools.partial(_rows, kind=kind) for kind in range(3)
}


def _framed(module: Any, region: bytes, count: int) -> object:
    """The records within a request, and usual requests, whole and damaged, that depend on them; and their responses."""
    chance = random.Random(region)
    usual = usual_frame(chance).content
    frames = [frame_of_records(region, count, 3 + count % 7), usual, *(damaged(usual, chance) for _ in range(4))]
    return [answered(module, frame) for frame in frames]


def answered(module: Any, frame: bytes) -> object:
    """What is read of a Produce request, and a response to it."""
    request = module.read_plain_produce(frame)
    if request is None:
        return None
    version, correlation_id, *_, topics, batches = request
    appended = [(partition, position - (1 << 62), size, -1) for _, partition, position, size, *_ in batches]
    return request, module.write_produce_response(version, correlation_id, topics, appended)


FRAMES: dict[str, Callable[[Any, bytes, int], Any]] = {"Produce requests": _framed}
HASHES: dict[str, Callable[[Any, bytes, int], Any]] = {
    "murmur2": lambda module, region, count: module.murmur2(region[: max(0, count)]),
}


def _fetched(module: Any, region: bytes, count: int) -> object:
    """Usual Fetch requests, whole and damaged, that depend on the records; and their responses."""
    chance = random.Random(region)
    usual = usual_fetch(chance)
    frames = [usual, *(damaged(usual, chance) for _ in range(4))]
    return [read(module, frame, count) for frame in frames]


def read(module: Any, frame: bytes, count: int) -> object:
    """What is read of a Fetch request, and a response to it."""
    request = module.read_plain_fetch(frame)
    if request is None:
        return None
    version, correlation_id, _, _, session_id, _, is_committed, *_, topics, positions = request
    read = [(index, offset, epoch - (1 << 62), -1, count % 3 * 64) for _, index, epoch, offset, *_ in positions]
    return request, module.write_fetch_response(version, correlation_id, session_id, is_committed, topics, read)


FETCHES: dict[str, Callable[[Any, bytes, int], Any]] = {"Fetch requests": _fetched}


def _written(module: Any, region: bytes, count: int) -> bytes:
    out = BytesWriter()
    module.write_header(out, len(region), count % 2 == 0)
    module.write_topic(out, region, count % (1 << 31), count % 2 == 0)
    module.write_size(out, len(out))
    return bytes(out.getvalue())


PARTS: dict[str, Callable[[Any, bytes, int], Any]] = {
    "header of a request": lambda module, region, count: module.read_header(region, count % 2 == 0),
    "topic of a request": lambda module, region, count: module.read_topic(region, max(0, count % 7), count % 2 == 0),
    "counts of a response": _written,
}


COMPARED = {
    "walk": (WALKS, 1),
    "key_table": (TABLES, EVERY_TABLE),
    "encoding": (ENCODERS, 1),
    "record_lines": (LINES, 1),
    "record_rows": (ROWS, 1),
    "frame": (PARTS, 1),
    "produce_frame": (FRAMES, 1),
    "fetch_frame": (FETCHES, 1),
    "key_hash": (HASHES, 1),
}
"""What is called of each module, on one of how many inputs."""


def _located(keys: vec[i32], end: int) -> tuple[list[i32], int]:
    return list(keys), end


def _some(count: int) -> vec[u8]:
    """Which records stay: one of three does not, and there may be more than the region has."""
    return vec[u8]([index % 3 != 1 for index in range(min(max(count, 0), 1 << 10))])


def interpreted(path: str) -> ModuleType:
    """The module as CPython interprets its source, whether or not it was compiled."""
    spec = importlib.util.spec_from_loader("interpreted", SourceFileLoader("interpreted", path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert str(module.__file__).endswith(".py")
    return module


def outcome_of(work: Callable[[Any, bytes, int], Any], module: ModuleType, region: bytes, count: int) -> object:
    """What a call returns, or the type and text of its error."""
    try:
        return work(module, region, count)
    except (IndexError, ValueError) as error:
        return type(error), str(error)


def outcome(module: ModuleType, name: str, region: bytes, count: int) -> object:
    """As `outcome_of`, by the name of a work."""
    works = {**WALKS, **TABLES, **ENCODERS, **LINES, **ROWS, **FRAMES, **FETCHES, **HASHES, **PARTS}
    return outcome_of(works[name], module, region, count)


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
    seed, count, *modules = sys.argv[1:]
    compared = [
        (importlib.import_module(name), interpreted(path), *COMPARED[Path(path).stem])
        for name, path in zip(modules[::2], modules[1::2], strict=True)
    ]
    for compiled, _, _, _ in compared:
        assert not str(compiled.__file__).endswith(".py"), compiled.__file__
    accepted = 0
    for number, (region, stated) in enumerate(inputs(int(seed), int(count))):
        for compiled, reference, works, every in compared:
            if number % every:
                continue
            for work in works:
                found, expected = outcome(compiled, work, region, stated), outcome(reference, work, region, stated)
                if found != expected:
                    raise SystemExit(f"{work} of {region.hex()} with {stated} records: {found}, interpreted {expected}")
        accepted += not isinstance(outcome(compared[0][0], "check_records", region, stated), tuple)
    sys.stdout.write(f"{count} inputs, {accepted} accepted\n")


if __name__ == "__main__":
    main()
