"""Protobuf without a registry, by a descriptor set as protoc --descriptor_set_out writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.timestamp_pb2 import Timestamp

from kctl.commands.frame.exit_status import ExitStatus
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_records import stdin

ORDER = b"\x08\x07\x12\x05\x0a\x03Zo\x65\x1a\x02\x08\x05"
"""id 7, customer {name "Zoe"}, at 5 s after 1970."""
SHOWN = {"id": "7", "customer": {"name": "Zoe"}, "at": "1970-01-01T00:00:05Z"}


def files() -> tuple[FileDescriptorProto, FileDescriptorProto, FileDescriptorProto]:
    """shop.Order, which uses shop.Customer of another file and a type of Protobuf."""
    known = FileDescriptorProto()
    Timestamp.DESCRIPTOR.file.CopyToProto(known)
    customer = FileDescriptorProto(name="customer.proto", package="shop", syntax="proto3")
    customer.message_type.add(name="Customer").field.add(name="name", number=1, type=9, label=1)
    order = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["customer.proto", "google/protobuf/timestamp.proto"])
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="customer", number=2, type=11, label=1, type_name=".shop.Customer")
    message.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.nested_type.add(name="Line").field.add(name="count", number=1, type=5, label=1)
    return known, customer, order


@pytest.fixture
def shop(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Records of shop.Order, one of which is not, and descriptor sets in the current folder."""
    monkeypatch.chdir(tmp_path)
    known, customer, order = files()
    circle = FileDescriptorProto(name="circle.proto", dependency=["circle.proto"])
    for name, content in {
        "whole": [known, customer, order],
        "unordered": [order, customer],
        "lacking": [order],
        "circle": [circle],
        "empty": [],
    }.items():
        Path(f"{name}.desc").write_bytes(FileDescriptorSet(file=content).SerializeToString())
    Path("text.desc").write_text("syntax = 'proto3';")
    (log,) = cluster.create("orders")
    cluster.create("copy")
    log.append(build_batch([Record(0, 1_000, b"\x08\x02", ORDER), Record(1, 1_000, None, None)]))
    log.append(build_batch([Record(0, 1_000, None, b"\xff")]))
    log.append(build_batch([Record(0, 1_000, None, b"")]))
    return cluster


def decoded(kctl: Kctl, options: str) -> tuple[int, list[Any]]:
    ran = kctl(f"consume orders --format jsonl {options}")
    return ran.status, [(row["value"], row["value_encoding"]) for row in map(json.loads, ran.out.splitlines())]


@pytest.mark.usefixtures("shop")
def test_messages_are_json(kctl: Kctl) -> None:
    for name in ("whole", "unordered"):  # protoc --include_imports or not: the types of Protobuf itself are known
        status, values = decoded(kctl, f"--value-descriptor {name}.desc --value-message shop.Order")
        shown = [(SHOWN, "json"), (None, None), ("/w==", "base64"), ({}, "json")]
        assert (status, values) == (ExitStatus.FAILED, shown), "a value that is no message stays as it is"
    message = "--value-descriptor whole.desc --value-message shop.Order"
    ran = kctl(f"consume orders {message} --value-only -n 1", "--where", 'value.customer.name = "Zoe"')
    assert (ran.status, json.loads(ran.out)) == (0, SHOWN)
    ran = kctl("consume orders --key-descriptor whole.desc --key-message shop.Order.Line --format json -n 1")
    assert (ran.document[0]["key"], ran.document[0]["key_schema_id"]) == ({"count": 2}, None)


def test_what_is_shown_is_written_back(kctl: Kctl, shop: FakeCluster) -> None:
    options = (
        "--value-descriptor whole.desc --value-message shop.Order --key-descriptor whole.desc"
        " --key-message shop.Order.Line"
    )
    with stdin(kctl(f"consume orders --until 2 --format jsonl {options}").out.encode()):
        ran = kctl(f"produce copy --input jsonl {options}")
    assert ran.status == 0, ran.err
    before, after = shop.records_of("orders", 0)[:2], shop.records_of("copy", 0)
    assert [(record.key, record.value) for record in after] == [(record.key, record.value) for record in before]
    with stdin(b'{"id": "x"}'):
        ran = kctl("produce copy --value-descriptor whole.desc --value-message shop.Order")
    assert (ran.status, "line 1: it is not a message of the schema" in ran.err) == (ExitStatus.USAGE, True), ran.err


@pytest.mark.usefixtures("shop")
@for_rows(
    "options, message",
    [
        ("--value-descriptor whole.desc", "--value-descriptor and --value-message are given together"),
        ("--key-message shop.Order", "--key-descriptor and --key-message are given together"),
        ("--value-descriptor nope.desc --value-message a", "cannot read nope.desc"),
        ("--value-descriptor text.desc --value-message a", "text.desc is not a descriptor set of protoc"),
        (
            "--value-descriptor whole.desc --value-message Order",
            "has no message type Order; it has google.protobuf.Timestamp, shop.Customer, shop.Order",
        ),
        ("--value-descriptor empty.desc --value-message a", "has no message type a; it has none"),
        (
            "--value-descriptor lacking.desc --value-message shop.Order",
            "lacks customer.proto, which it imports: use protoc --include_imports",
        ),
        ("--value-descriptor circle.desc --value-message a", "circle.desc has an invalid descriptor of circle.proto"),
        (
            "--value-descriptor whole.desc --value-message shop.Order --decode both",
            "--decode both and --value-descriptor cannot be combined",
        ),
        (
            "--value-descriptor whole.desc --value-message shop.Order --formatter offsets",
            "--formatter decodes internal topics",
        ),
    ],
)
def test_descriptors_that_cannot_be_used_are_refused(kctl: Kctl, options: str, message: str) -> None:
    ran = kctl(f"consume orders {options}")
    assert (ran.out, message in ran.err) == ("", True), ran.err
    assert ran.status in {ExitStatus.USAGE, ExitStatus.FAILED}


@pytest.mark.usefixtures("shop")
def test_a_schema_and_a_descriptor_exclude_each_other(kctl: Kctl) -> None:
    ran = kctl("produce copy --value-schema latest --value-descriptor whole.desc --value-message shop.Order")
    assert (ran.status, "--value-schema and --value-descriptor cannot be combined" in ran.err) == (2, True), ran.err
