"""Requests to the rules of a registry: status and body of each, and the state that the topic's records give again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from kctl.schemas.formats.schema_parser import SchemaParser
from kctl.schemas.refusals import Refused
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import Request
from kctl.schemas.rules.routes import answer
from kctl.schemas.serving.protoc import compile_protobuf
from kctl.schemas.topic_records import TopicRecord, UnreadableRecord, change_of
from tests.rows import for_rows
from tests.unit.schemas.requests_by_scenario import INT, R1, SCENARIOS, Step


class RecordedRegistry:
    """A registry with the topic as a list of records."""

    def __init__(self, records: Iterable[TopicRecord] = ()) -> None:
        self.registry = Registry(SchemaParser(compile_protobuf))
        self.records: list[TopicRecord] = []
        self._take(records)

    def _take(self, records: Iterable[TopicRecord]) -> None:
        for record in records:
            self.records.append(record)
            change = change_of(record)
            if change is not None:
                self.registry.state.apply(change)

    def ask(self, line: str, body: Any = None) -> tuple[int, Any]:
        method, _, path = line.partition(" ")
        parts = urlsplit(path)
        segments = tuple(unquote(segment) for segment in parts.path.split("/") if segment)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        data = b"" if body is None else json.dumps(body).encode()
        try:
            found = answer(self.registry, Request(method, segments, query, data))
        except Refused as refused:
            return refused.status, refused.document
        self._take(found.records)
        return 200, found.document

    def compacted(self) -> list[TopicRecord]:
        """The latest record of each key, in order, with and without tombstones being the same."""
        latest = {record.key: index for index, record in enumerate(self.records)}
        return [record for index, record in enumerate(self.records) if latest[record.key] == index]


def check(registry: RecordedRegistry, step: Step) -> None:
    line, body, status, expected = step
    found = registry.ask(line, body)
    if isinstance(expected, int) and status != 200:
        assert (found[0], found[1]["error_code"]) == (status, expected), line
        assert found[1]["message"]
    else:
        assert found == (status, expected), line


@for_rows("name, steps", SCENARIOS.items())
def test_requests_have_the_documented_status_and_body(name: str, steps: list[Step]) -> None:
    registry = RecordedRegistry()
    for step in steps:
        check(registry, step)
    assert name


def test_there_are_many_requests() -> None:
    assert sum(map(len, SCENARIOS.values())) > 200


READ = (
    *("GET /subjects", "GET /subjects?deleted=true", "GET /schemas?deleted=true", "GET /config", "GET /mode"),
    *("GET /contexts", "GET /config/a", "GET /mode/a", "GET /schemas/ids/1/versions?deleted=true"),
)


@for_rows("name, steps", SCENARIOS.items())
def test_the_topic_has_the_whole_state_at_any_time_also_when_it_was_compacted(name: str, steps: list[Step]) -> None:
    registry = RecordedRegistry()
    for line, body, _, _ in steps:
        written = len(registry.records)
        registry.ask(line, body)
        if len(registry.records) == written:
            continue
        expected = [registry.ask(read) for read in READ]
        for records in (registry.records, registry.compacted()):
            again = RecordedRegistry(records)
            assert [again.ask(read) for read in READ] == expected, (name, line)


def test_a_refused_request_writes_nothing() -> None:
    for steps in SCENARIOS.values():
        registry = RecordedRegistry()
        for line, body, status, _ in steps:
            before = len(registry.records)
            registry.ask(line, body)
            assert status == 200 or len(registry.records) == before, line
            assert not line.startswith("GET") or len(registry.records) == before, line


@for_rows(
    "level, body, is_compatible",
    [
        # The versions are a record with `a`, then one with `a` and `b` that has a default, then one with `a` only.
        ("NONE", '{"type":"record","name":"R","fields":[{"name":"z","type":"int"}]}', True),
        ("BACKWARD", '{"type":"record","name":"R","fields":[]}', True),
        ("BACKWARD", '{"type":"record","name":"R","fields":[{"name":"z","type":"int"}]}', False),
        (
            "BACKWARD_TRANSITIVE",
            '{"type":"record","name":"R","fields":[{"name":"b","type":"string","default":""}]}',
            False,
        ),
        ("BACKWARD", '{"type":"record","name":"R","fields":[{"name":"b","type":"string","default":""}]}', True),
        (
            "FORWARD",
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"z","type":"int"}]}',
            True,
        ),
        ("FORWARD", '{"type":"record","name":"R","fields":[]}', False),
        (
            "FORWARD",
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"}]}',
            True,
        ),
        (
            "FORWARD_TRANSITIVE",
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"}]}',
            False,
        ),
        ("FULL", '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"z","type":"int"}]}', False),
        (
            "FULL",
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string","default":""}]}',
            True,
        ),
        (
            "FULL_TRANSITIVE",
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string","default":""}]}',
            False,
        ),
        (
            "FULL_TRANSITIVE",
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"z","type":"int","default":0}]}',
            True,
        ),
    ],
)
def test_levels_compare_with_the_latest_version_or_with_all(level: str, body: str, is_compatible: bool) -> None:
    registry = RecordedRegistry()
    b = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
    third = '{"type":"record","name":"R","doc":"third","fields":[{"name":"a","type":"int"}]}'
    for schema in (R1["schema"], b, third):
        assert registry.ask("POST /subjects/a/versions", {"schema": schema})[0] == 200
    registry.ask("PUT /config/a", {"compatibility": level})
    found = registry.ask("POST /compatibility/subjects/a/versions?verbose=true", {"schema": body})
    assert (found[1]["is_compatible"], bool(found[1]["messages"])) == (is_compatible, not is_compatible)
    assert registry.ask("POST /subjects/a/versions", {"schema": body})[0] == (200 if is_compatible else 409)


def test_records_are_in_confluents_format() -> None:
    registry = RecordedRegistry()
    registry.ask("POST /subjects/a/versions", INT)
    registry.ask("POST /subjects/j/versions", {"schema": "{}", "schemaType": "JSON"})
    registry.ask("PUT /config/a", {"compatibility": "FULL"})
    registry.ask("PUT /config", {"compatibility": "NONE"})
    registry.ask("PUT /mode", {"mode": "READWRITE"})
    registry.ask("DELETE /subjects/a")
    registry.ask("DELETE /subjects/a?permanent=true")
    assert [(record.key.decode(), record.value and record.value.decode()) for record in registry.records] == [
        (
            '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            '{"subject":"a","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}',
            '{"subject":"j","version":1,"id":2,"schemaType":"JSON","schema":"{}","deleted":false}',
        ),
        ('{"keytype":"CONFIG","subject":"a","magic":0}', '{"subject":"a","compatibilityLevel":"FULL"}'),
        ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"NONE"}'),
        ('{"keytype":"MODE","magic":0}', '{"mode":"READWRITE"}'),
        ('{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', '{"subject":"a","version":1}'),
        ('{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', None),
        ('{"keytype":"CONFIG","subject":"a","magic":0}', None),
    ]


def test_records_of_another_registry_are_read() -> None:
    """As Confluent's writes them, with null subjects, check sums and types that have no effect here."""
    registry = RecordedRegistry(
        [
            TopicRecord(b'{"keytype":"NOOP","magic":0}', None),
            TopicRecord(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
            TopicRecord(
                b'{"keytype":"SCHEMA","subject":"a","version":3,"magic":1}',
                b'{"subject":"a","version":3,"id":7,"md5":"x","schema":"\\"int\\"","deleted":false,"ts":5}',
            ),
            TopicRecord(b'{"keytype":"ASSOCIATION","tenant":"default"}', b"{}"),
        ]
    )
    assert registry.ask("GET /config") == (200, {"compatibilityLevel": "FULL"})
    assert registry.ask("GET /schemas/ids/7") == (200, {"schema": '"int"'})
    assert registry.ask("POST /subjects/b/versions", {"schema": '"long"'}) == (200, {"id": 8})


@for_rows(
    "key, value",
    [
        (b"x", None),
        (b"[]", b"{}"),
        (b"{}", b"5"),
        (b'{"keytype":"SCHEMA","subject":5,"version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":"x"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x","id":-1}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x","id":1,"references":[5]}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a"}', b"{}"),
        (b'{"keytype":"MODE"}', b'{"mode":5}'),
        (b"\xff", None),
    ],
)
def test_records_in_another_format_are_unreadable(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        change_of(TopicRecord(key, value))
