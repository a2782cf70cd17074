"""What was not read is never equal, and nothing that differs or is missing is left out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kctl.errors import UsageError
from kctl.migration.verifying.fingerprint import (
    Compared,
    Fingerprint,
    Item,
    Range,
    Status,
    Subject,
    compare,
    counts,
    fingerprint_text,
    is_different,
    parse_fingerprint,
)
from kctl.migration.verifying.reading import _InOrder, _Latest
from kctl.model import TopicPartition
from kctl.output.documents import parse_json
from kctl.records.header import Record

ORDERS = TopicPartition("orders", 0)


def _fingerprint(values: Mapping[tuple[Subject, str], str], unread: Mapping[str, str] | None = None) -> Fingerprint:
    items = {Item(*key): value for key, value in values.items()}
    return Fingerprint(items, unread or {}, {Subject.RECORDS: {ORDERS: Range(3, 9)}})


def _statuses(compared: list[Compared]) -> dict[tuple[str, str], Status]:
    return {(row.subject, row.name): row.status for row in compared}


def test_each_item_has_a_status() -> None:
    before = _fingerprint({(Subject.ACL, "a"): "yes", (Subject.ACL, "b"): "yes", (Subject.QUOTA, "q"): "1"})
    after = _fingerprint({(Subject.ACL, "a"): "yes", (Subject.ACL, "c"): "yes", (Subject.QUOTA, "q"): "2"})
    compared = compare(before, after)
    assert _statuses(compared) == {
        ("acl", "a"): Status.EQUAL,
        ("acl", "b"): Status.MISSING,
        ("acl", "c"): Status.NEW,
        ("quota", "q"): Status.DIFFERS,
    }
    assert is_different(compared)
    assert ("acl", Status.EQUAL, 1) in list(counts(compared))
    assert not is_different(compare(before, before))


def test_what_one_side_could_not_read_is_not_compared() -> None:
    values = {
        (Subject.ACL, "a"): "yes",
        (Subject.GROUP_OFFSET, "g orders-0"): "1 ''",
        (Subject.RECORDS, "orders-0"): "x",
    }
    whole = _fingerprint(values)
    for unread in ("acl", "group offset g", "records orders-0"):
        for before, after in (
            (whole, _fingerprint({}, {unread: "why"})),
            (_fingerprint(values, {unread: "why"}), whole),
        ):
            statuses = {row.status for row in compare(before, after) if f"{row.subject} {row.name}".startswith(unread)}
            assert statuses == {Status.NOT_COMPARED}, unread


def test_properties_that_4_has_in_another_form_are_translated_and_other_values_differ() -> None:
    name = (Subject.TOPIC_CONFIG, "orders segment.bytes")
    old = (Subject.TOPIC_CONFIG, "orders message.format.version")
    before = _fingerprint({name: "4096", old: "2.8"})
    assert set(_statuses(compare(before, _fingerprint({name: "1048576"}))).values()) == {Status.TRANSLATED}
    assert _statuses(compare(before, _fingerprint({name: "2000000"})))["topic config", "orders segment.bytes"] is (
        Status.DIFFERS
    )


def test_a_fingerprint_is_the_same_after_its_document_was_read() -> None:
    before = _fingerprint({(Subject.ACL, "a"): "yes"}, {"token": "no"})
    text = fingerprint_text(before)
    assert parse_fingerprint(parse_json(text), "before.json") == before
    for changed in (text.replace("yes", "no"), "{}", "[]"):
        with pytest.raises(UsageError, match=r"before\.json is not a fingerprint"):
            parse_fingerprint(parse_json(changed), "before.json")


RECORD = Record(3, 1000, b"k", b"v", (("h", b"1"),))
OTHERS = (
    RECORD._replace(offset=4),
    RECORD._replace(timestamp=1001),
    RECORD._replace(key=None),
    RECORD._replace(key=b"kv", value=b""),
    RECORD._replace(value=None),
    RECORD._replace(headers=()),
    RECORD._replace(headers=(("h", None),)),
)


def test_each_part_of_a_record_changes_the_hash() -> None:
    def text(record: Record) -> str | None:
        hashed = _InOrder()
        hashed.add(record)
        return hashed.text()

    assert len({text(record) for record in (RECORD, *OTHERS)}) == len(OTHERS) + 1


def test_a_cleaner_does_not_change_the_hash_of_a_compacted_topic() -> None:
    written, cleaned = _Latest(), _Latest()
    last = [RECORD._replace(offset=9), RECORD._replace(offset=10, key=b"other")]
    for record in (
        RECORD,
        RECORD._replace(offset=5, key=b"gone"),
        *last,
        RECORD._replace(offset=11, key=b"gone", value=None),
    ):
        written.add(record)
    for record in last:
        cleaned.add(record)
    assert written.text() == cleaned.text()
    cleaned.add(RECORD._replace(offset=12, value=b"changed"))
    assert written.text() != cleaned.text()
