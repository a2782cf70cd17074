"""dump-log shows any bytes of a file or of internal topic records, or reports what is wrong."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import pytest

from kctl.commands.compat.dump_log import ClassicDump, ClassicOptions
from kctl.commands.compat.texts import internal_records as classic
from kctl.commands.compat.texts.dump_log import control_text
from kctl.commands.compat.texts.java import KAFKA_4, KAFKA_28
from kctl.commands.dump_log.rows import Decode, LineRows, Shown
from kctl.commands.dump_log.selection import Selection
from kctl.dump.batches import PROBLEM_TEXT_MAX, Problem
from kctl.dump.files import walk
from kctl.dump.kinds import kind_of
from kctl.output.console import Console, Format
from kctl.records.batch import iterate_records
from kctl.records.header import Record, parse_header
from kctl.records.internal import entries
from tests.rows import for_rows

SEED = 848
ROUNDS = 400
FILES = Path(__file__).parent.parent / "golden" / "storage" / "kafka-4.3.1"
OLD_FILES = FILES.parent / "kafka-2.7.1"
CLASSIC = (
    *(classic.offsets_4, classic.offsets_28, classic.transactions_4, classic.transactions_28),
    *(classic.share_group_state_4, classic.cluster_metadata_4, classic.remote_log_metadata_4),
)
OWN: tuple[Decode, ...] = (
    *(entries.offsets_record, entries.transaction_record),
    *(entries.share_group_state_record, entries.cluster_metadata_record),
    entries.remote_log_metadata_record,
)
TEXT_PER_BYTE = 200
"""The most characters that a byte of a record may become: an element of an array of structs has many names."""


def records() -> list[Record]:
    """All records of the golden logs."""
    found: list[Record] = []
    for path in sorted([*FILES.rglob("*.log"), *FILES.rglob("*.checkpoint")]):
        data = memoryview(path.read_bytes())
        while data:
            size = parse_header(data).size
            found += iterate_records(data[:size])
            data = data[size:]
    return found


def damaged(data: bytes, random: Random) -> bytes:
    """A few bytes of it overwritten, inserted or cut off."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(changed))
        inserted = random.choice((random.randbytes(random.randint(0, 5)), b"\xff" * 5, b"\0" * 4, b"\x7f\xff\xff\xff"))
        changed[at : at + random.randint(0, 5)] = inserted
        if random.random() < 0.1:
            del changed[at:]
    return bytes(changed)


@for_rows("decode", [*CLASSIC, *OWN])
def test_damaged_record_is_shown_by_every_decoder(decode: Decode) -> None:
    random, whole = Random(SEED), records()
    for _ in range(ROUNDS):
        record = random.choice(whole)
        key = None if record.key is None else damaged(bytes(record.key), random)
        value = None if record.value is None else damaged(bytes(record.value), random)
        shown = decode(Record(1, 2, key, value))
        size = len(key or b"") + len(value or b"")
        assert sum(len(str(part)) for part in shown) <= TEXT_PER_BYTE * (size + 10)
        control_text(Record(1, 2, key, value), KAFKA_4)


@pytest.mark.long
@for_rows(
    "path",
    sorted(
        path
        for folder in (FILES, OLD_FILES)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".txt" and path.stat().st_size
    ),
)
def test_damaged_file_is_shown_with_its_error(path: Path, tmp_path: Path) -> None:
    random, whole = Random(SEED), path.read_bytes()
    copy = tmp_path / path.name
    for _ in range(30):
        copy.write_bytes(damaged(whole, random) if random.random() < 0.9 else random.randbytes(random.randint(0, 300)))
        size = copy.stat().st_size
        for decode in (None, OWN[2], OWN[3]):
            out = io.StringIO()
            rows = LineRows(Shown(Selection(), True, False, decode, None, None))
            rows.show(Console(out, io.StringIO(), format=Format.JSONL), str(copy), kind_of(str(copy)), walk(str(copy)))
            assert len(out.getvalue()) <= TEXT_PER_BYTE * (size + 100)
        for compat in (KAFKA_28, KAFKA_4):
            options = ClassicOptions(
                deep=True, parser=CLASSIC[5], skip_metadata=False, verify_only=False, sanity_only=False, max_bytes=None
            )
            dump = ClassicDump(Console(io.StringIO(), io.StringIO()), compat, options)
            dump.show(str(copy))
            dump.finish()


@for_rows("name", ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "partition.metadata"])
@for_rows("content", ["0\n1\n%s", "%s\n1\n0 0"])
def test_long_line_of_a_text_file_is_shortened(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content % ("x" * 100_000))
    problems = [line for line in walk(str(tmp_path / name)) if isinstance(line, Problem)]
    assert problems
    assert all(len(problem.reason) <= PROBLEM_TEXT_MAX + 3 for problem in problems)
