"""Parsing of reassignments and partition lists."""

from __future__ import annotations

import json

import pytest

from kctl.admin.placement.documents import (
    format_reassignment,
    parse_inline,
    parse_log_dirs,
    parse_partitions,
    parse_reassignment,
)
from kctl.errors import UsageError
from kctl.model import TopicPartition
from tests.rows import for_rows

TP = TopicPartition("orders", 1)


def test_json_of_kafkas_tools_is_read_and_written_byte_for_byte() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[1,2,3],'
        '"log_dirs":["any","any","any"]}]}'
    )
    assert parse_reassignment(text) == {TP: (1, 2, 3)}
    assert format_reassignment(parse_reassignment(text)) == text


def test_log_directories_are_read_and_written() -> None:
    text = '{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[1,2],"log_dirs":["any","/disk 2"]}]}'
    assert parse_log_dirs(text) == {(2, TP): "/disk 2"}
    assert format_reassignment(parse_reassignment(text), parse_log_dirs(text)) == text


def test_version_and_log_dirs_may_be_left_out() -> None:
    assert parse_reassignment('{"partitions":[{"topic":"orders","partition":1,"replicas":[2]}]}') == {TP: (2,)}


@for_rows(
    "partition, why",
    [
        ({"topic": "orders", "partition": 1, "replicas": []}, "without replicas"),
        ({"topic": "orders", "partition": 1, "replicas": [1, 1]}, "twice"),
        ({"topic": "orders", "partition": 1, "replicas": ["1"]}, "not a list of broker ids"),
        ({"topic": "orders", "partition": 1, "replicas": [-1]}, "not a list of broker ids"),
        ({"topic": "orders", "partition": 1, "replicas": [True]}, "not a list of broker ids"),
        ({"topic": "orders", "partition": 1}, "not a list of broker ids"),
        ({"topic": "orders", "partition": -1, "replicas": [1]}, "no partition number"),
        ({"topic": "", "partition": 1, "replicas": [1]}, "no topic"),
        ({"partition": 1, "replicas": [1]}, "no topic"),
        ({"topic": "orders", "partition": 1, "replicas": [1], "log_dirs": []}, "as many log_dirs"),
        ({"topic": "orders", "partition": 1, "replicas": [1], "log_dirs": ["d"]}, "absolute path"),
        ({"topic": "orders", "partition": 1, "replicas": [1], "log_dirs": [None]}, "absolute path"),
    ],
)
def test_malformed_specs_are_refused_with_a_reason(partition: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_reassignment(json.dumps({"version": 1, "partitions": [partition]}))


@for_rows(
    "text, why",
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "'partitions' is missing"),
        ('{"partitions":[1]}', "not a list of objects"),
        ('{"partitions":[]}', "names no partition"),
        ('{"version":2,"partitions":[]}', "version 2"),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":[1]},{"topic":"a","partition":0,"replicas":[2]}]}',
            "twice",
        ),
    ],
)
def test_document_without_a_reassignment_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_reassignment(text)


def test_moves_are_parsed_from_the_command_line() -> None:
    assert parse_inline(["orders:1=1,2", "a.b-c:0=3"]) == {TP: (1, 2), TopicPartition("a.b-c", 0): (3,)}
    assert parse_inline(["orders:1"], with_replicas=False) == {TP: ()}


@for_rows("text", ["orders", "orders:1", "orders:1=", "orders:x=1", "orders:1=1,,2", "orders:1=1,1"])
def test_invalid_moves_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_inline([text])


def test_partition_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_inline(["orders:1=1", "orders:1=2"])


def test_list_of_partitions_for_an_election() -> None:
    text = '{"partitions":[{"topic":"orders","partition":1},{"topic":"a","partition":0}]}'
    assert parse_partitions(text) == [TopicPartition("a", 0), TP]
    with pytest.raises(UsageError, match="twice"):
        parse_partitions('{"partitions":[{"topic":"a","partition":0},{"topic":"a","partition":0}]}')
    with pytest.raises(UsageError, match="no partition"):
        parse_partitions('{"partitions":[]}')
