"""Conversion between message formats against Apache Kafka 2.8's own: same records, wrappers, offsets, times, refusals.

What is not compressed is equal to the byte; what is, after decompression, because codecs have many right answers.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.records.batch import iterate_batches, iterate_records, records_region
from kctl.records.build import build_batch, rebuild_batch
from kctl.records.compression import Codec, decompress
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import CODEC_MASK, CorruptBatch, Record, TimestampType, parse_header
from kctl.records.old_formats.conversion import downgrade
from kctl.records.old_formats.legacy import build_messages
from kctl.records.validate import AppendRules, validate_produced
from tests.peers.apache_kafka import OLDEST_JUDGE, run_java_tool, why_not
from tests.unit.records.old_messages import OLD_CODECS, message, pair, wrapper

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("KafkaFormats.java")
SEED = 8
NOW_MS = 1_700_000_000_000
CASES = 150

NAMES = {
    ErrorCode.CORRUPT_MESSAGE: {"CorruptRecordException"},
    ErrorCode.INVALID_RECORD: {"InvalidRecordException", "RecordValidationException", "KafkaException"},
    ErrorCode.INVALID_TIMESTAMP: {"InvalidTimestampException", "RecordValidationException", "IllegalArgumentException"},
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: {"UnsupportedCompressionTypeException", "IllegalArgumentException"},
}


def call_kafka(lines: list[str]) -> list[str]:
    if reason := why_not():
        pytest.skip(reason)
    completed = run_java_tool(OLDEST_JUDGE, str(PROGRAM), [], stdin="\n".join(lines) + "\n", timeout_s=120)
    assert completed.returncode == 0, completed.stderr
    responses = completed.stdout.splitlines()
    assert len(responses) == len(lines)
    return responses


def some_bytes(random: Random) -> bytes | None:
    return random.choice([None, b"", random.randbytes(random.randrange(30)), b"long" * random.randrange(300)])


def some_records(random: Random) -> list[Record]:
    times = random.choice([[-1], [NOW_MS], [NOW_MS, NOW_MS - 5, NOW_MS + 70_000], [-1, 0, NOW_MS]])
    headers = random.choice([(), (("h", b"x"), ("", None))])
    return [
        Record(index, random.choice(times), some_bytes(random), some_bytes(random), headers)
        for index in range(random.randrange(1, 9))
    ]


def some_log(random: Random) -> tuple[bytes, int]:
    """Batches as a log has them, and an offset in the first of them."""
    data, offset = b"", random.choice([0, 5, 2**40])
    start = offset
    for number in range(random.randrange(1, 5)):
        records = some_records(random)
        kind = random.choice([TimestampType.CREATE_TIME] * 3 + [TimestampType.LOG_APPEND_TIME])
        batch = build_batch(records, base_offset=offset, codec=random.choice(OLD_CODECS), timestamp_type=kind)
        if number and random.random() < 0.3:
            marker = EndTransactionMarker(ControlType.COMMIT, 0)
            batch = build_end_transaction_marker(
                marker, producer_id=1, producer_epoch=0, timestamp=5, base_offset=offset
            )
        elif random.random() < 0.3:
            kept = [record for record in iterate_records(batch) if random.random() < 0.5]
            batch = rebuild_batch(parse_header(batch), kept)
        elif random.random() < 0.3 and min(record.timestamp for record in records) >= 0:
            plain = [record._replace(offset=offset + index) for index, record in enumerate(records)]
            batch = build_messages(plain, magic=random.choice([0, 1]), codec=random.choice(OLD_CODECS))
        data += batch
        offset = max(header.next_offset for header in iterate_batches(data))
    first = next(iterate_batches(data))
    return data, random.randint(start, first.last_offset)


def shape(data: bytes) -> list[object]:
    """Everything in messages but how they are compressed."""
    seen: list[object] = []
    for header in iterate_batches(data):
        if header.attributes & CODEC_MASK:
            value = data[header.position + (26 if header.magic == 0 else 34) : header.end]
            if header.magic == 0 and header.codec is Codec.LZ4:
                assert value[:7].hex() == "04224d1860401a"
                value = value[:6] + b"\x82" + value[7:]
            seen.append((header.last_offset, header.magic, header.attributes, header.max_timestamp))
            seen.append(decompress(header.codec, value))
        else:
            seen.append(data[header.position : header.end])
    return seen


def test_batches_are_down_converted_as_by_kafka() -> None:
    random = Random(SEED)
    cases = [(*some_log(random), magic) for _ in range(CASES) for magic in (0, 1)]
    responses = call_kafka([f"down {magic} {first} {data.hex()}" for data, first, magic in cases])
    for (data, first, magic), response in zip(cases, responses, strict=True):
        ours, next_offset = downgrade(data, magic, first_offset=first, size_max=1 << 30)
        assert shape(ours) == shape(bytes.fromhex(response)), (magic, first, data.hex())
        assert next_offset == [header.next_offset for header in iterate_batches(data)][-1]


def upgraded(messages: bytes, codec: int, kind: TimestampType) -> bytes:
    rules = AppendRules(1 << 20, 1 << 20, timestamp_type=kind, codec=None if codec < 0 else Codec(codec))
    return bytes(validate_produced(messages, rules, now_ms=NOW_MS, request_version=2).buffer)


def plain(batch: bytes) -> bytes:
    """The batch without compression, and without the fields that a codec or the leader's epoch changes."""
    header = parse_header(batch)
    assert header.size == len(batch)
    fixed = (
        *(header.base_offset, header.magic, header.attributes, header.last_offset_delta, header.base_timestamp),
        *(header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence, header.record_count),
    )
    return repr(fixed).encode() + bytes(records_region(batch, header))


def test_messages_are_up_converted_as_by_kafka() -> None:
    random = Random(SEED)
    cases = []
    for _ in range(CASES):
        records = [record._replace(headers=()) for record in some_records(random)]
        messages = build_messages(records, magic=random.choice([0, 1]), codec=random.choice(OLD_CODECS))
        cases.append((messages, random.choice([-1, *Codec]), random.choice(list(TimestampType))))
    names = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
    responses = call_kafka([f"up {int(codec)} {names[kind]} {NOW_MS} {data.hex()}" for data, codec, kind in cases])
    for (messages, codec, kind), response in zip(cases, responses, strict=True):
        ours, theirs = upgraded(messages, codec, kind), bytes.fromhex(response)
        assert plain(ours) == plain(theirs), (codec, kind, messages.hex())
        if not parse_header(ours).attributes & CODEC_MASK:
            assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def odd_messages() -> list[bytes]:
    bad = bytearray(message(pair(b"k", b"v")))
    bad[13] ^= 1
    good = message(pair(b"k", b"v"))
    return [
        bytes(bad),
        wrapper(bytes(bad)),
        wrapper(good) * 2,
        good + wrapper(good),
        message(pair(None, b"v"), magic=0) + good,
        good + build_batch([Record(0, 5, b"k", b"v")]),
        wrapper(message(pair(None, b"v"), magic=0)),
        wrapper(message(pair(None, b"v")), magic=0),
        wrapper(wrapper(good)),
        wrapper(good, offset=5),
        wrapper(good + message(pair(None, b"w"), offset=9), offset=8),
        wrapper(good * 3),
        wrapper(good + good[:-1]),
        wrapper(b""),
        message(pair(None, None), attributes=1),
        message(pair(None, b"v"), attributes=4),
        message(pair(None, b"v"), attributes=5),
        message(pair(None, b"v"), attributes=8),
        message(pair(None, b"v"), attributes=0x70),
        message(pair(None, b"v"), timestamp=-2),
        message(pair(None, b"v"), size=13),
        good + good[:-1],
        message(b"\xff\xff\xff\xf0" + b"\xff\xff\xff\xf1"),
    ]


def test_records_refused_by_kafka_are_refused_with_the_same_error() -> None:
    cases = odd_messages()
    responses = call_kafka([f"up -1 CreateTime {NOW_MS} {data.hex()}" for data in cases])
    for messages, response in zip(cases, responses, strict=True):
        if response.startswith("! "):
            with pytest.raises(ApiError) as caught:
                upgraded(messages, -1, TimestampType.CREATE_TIME)
            assert response[2:] in NAMES[caught.value.code], messages.hex()
        else:
            ours = upgraded(messages, -1, TimestampType.CREATE_TIME)
            assert plain(ours) == plain(bytes.fromhex(response)), messages.hex()


def test_zstd_is_refused_as_kafka_refuses_it() -> None:
    data = build_batch([Record(0, 5, b"k", b"v")], codec=Codec.ZSTD)
    assert call_kafka([f"down 1 0 {data.hex()}"]) == ["! UnsupportedCompressionTypeException"]
    with pytest.raises((ApiError, CorruptBatch)) as caught:
        downgrade(data, 1, first_offset=0, size_max=1 << 20)
    assert isinstance(caught.value, ApiError)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
