"""Schema registries: what Confluent's serializers write is decoded, and what kctl encodes their deserializers read."""

from __future__ import annotations

import base64
import datetime
import io
import json
import ssl
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.registry import schema as registry_schema
from kctl.client.registry.avro import AvroCodec
from kctl.client.registry.client import REGISTRY_REFERENCES_MAX, REGISTRY_RESPONSE_BYTES_MAX, RegistryClient
from kctl.client.registry.codecs import Decoder, Encoder
from kctl.client.registry.schema import (
    RegistryUnreachable,
    SchemaError,
    header_of,
    indexes_of,
    registry_settings,
    split_header,
    split_indexes,
)
from kctl.errors import ConfigError
from tests.peers.certificates import CertificateAuthority
from tests.peers.schema_registry import SchemaRegistry, basic, schema_registry
from tests.rows import for_rows

VALUE = SerializationContext("orders", MessageField.VALUE)
CUSTOMER = {"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "shop.Customer"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
LIST = {"type": "record", "name": "List", "fields": [{"name": "next", "type": ["null", "List"]}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as started:
        yield started


def client_of(
    registry: SchemaRegistry, properties: dict[str, str] | None = None, *, timeout_ms: int = 60_000
) -> RegistryClient:
    settings = registry_settings(
        {f"schema.registry.{name}": value for name, value in (properties or {}).items()}, registry.url
    )
    assert settings is not None
    return RegistryClient(settings, timeout_ms)


def confluent(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def decoded(registry: SchemaRegistry, data: bytes) -> Any:
    return json.loads(Decoder(client_of(registry)).decode(data).text)


def test_avro_of_confluents_serializer_with_a_reference(registry: SchemaRegistry) -> None:
    registry.register("customer", json.dumps(CUSTOMER))
    order = {
        "id": 7,
        "customer": {"name": "Zoë"},
        "note": "x",
        "raw": b"\xff\x00",
        "at": datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        "price": Decimal("12.34"),
        "tags": ["a"],
    }
    schema = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("shop.Customer", "customer", 1)])
    written = AvroSerializer(confluent(registry), schema)(order, VALUE)
    shown = decoded(registry, written)
    assert shown == {
        "id": 7,
        "customer": {"name": "Zoë"},
        "note": {"string": "x"},
        "raw": "\xff\x00",
        "at": "2026-11-21T00:00:00.000Z",
        "price": "12.34",
        "tags": ["a"],
    }
    schema_id, _ = split_header(written)
    again = Encoder(client_of(registry).by_id(schema_id)).encode(json.dumps(shown).encode())
    assert again == written
    assert AvroDeserializer(confluent(registry), schema)(again, VALUE) == order


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_texts(registry: SchemaRegistry, value: float) -> None:
    written = AvroSerializer(confluent(registry), '"double"')(value, VALUE)
    assert decoded(registry, written) in ("NaN", "Infinity", "-Infinity")


def test_json_schema_of_confluents_serializer_with_a_reference(registry: SchemaRegistry) -> None:
    customer = {"$id": "customer.json", "type": "object", "properties": {"name": {"type": "string"}}, "title": "c"}
    order = {"type": "object", "properties": {"customer": {"$ref": "customer.json"}}, "title": "o"}
    registry.register("customer", json.dumps(customer), "JSON")
    schema = Schema(json.dumps(order), "JSON", [SchemaReference("customer.json", "customer", 1)])
    document = {"customer": {"name": "Zoë"}}
    written = JSONSerializer(schema, confluent(registry))(document, VALUE)
    assert decoded(registry, written) == document
    encoder = Encoder(client_of(registry).of_subject("orders-value", "latest"))
    again = encoder.encode(json.dumps(document).encode())
    assert JSONDeserializer(schema, schema_registry_client=confluent(registry))(again, VALUE) == document
    with pytest.raises(SchemaError, match=r"it is not valid at \$.customer.name: 7 is not of type 'string'"):
        encoder.encode(b'{"customer":{"name":7}}')


def protobuf_types() -> tuple[Any, Any]:
    """The message types shop.Order and shop.Order.Line, with an imported type and a well-known one."""
    pool = DescriptorPool()
    known, customer, order = FileDescriptorProto(), FileDescriptorProto(), FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    customer.name, customer.package, customer.syntax = "customer.proto", "shop", "proto3"
    type_ = customer.message_type.add(name="Customer")
    type_.field.add(name="name", number=1, type=9, label=1, json_name="name")
    order.name, order.package, order.syntax = "order.proto", "shop", "proto3"
    order.dependency.extend(["customer.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="Other")
    type_ = order.message_type.add(name="Order")
    type_.field.add(name="order_id", number=1, type=3, label=1, json_name="orderId")
    type_.field.add(name="customer", number=2, type=11, label=1, type_name=".shop.Customer", json_name="customer")
    type_.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp", json_name="at")
    line = type_.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=9, label=1, json_name="item")
    for file in (known, customer, order):
        pool.Add(file)
    names = ("shop.Order", "shop.Order.Line")
    order_type, line_type = (GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return order_type, line_type


@pytest.mark.filterwarnings("ignore")  # of Confluent's serializer
def test_protobuf_of_confluents_serializer_with_references(registry: SchemaRegistry) -> None:
    order_type, line_type = protobuf_types()
    order = order_type(order_id=7)
    order.customer.name = "Zoë"
    order.at.seconds = 1
    written = ProtobufSerializer(order_type, confluent(registry), {"use.deprecated.format": False})(order, VALUE)
    shown = decoded(registry, written)
    assert shown == {"order_id": "7", "customer": {"name": "Zoë"}, "at": "1970-01-01T00:00:01Z"}
    schema_id, _ = split_header(written)
    encoder = Encoder(client_of(registry).by_id(schema_id), "shop.Order")
    again = encoder.encode(json.dumps(shown).encode())
    assert again == written
    read = ProtobufDeserializer(order_type, {"use.deprecated.format": False}, confluent(registry))(again, VALUE)
    assert read == order
    line = line_type(item="x")
    written = ProtobufSerializer(line_type, confluent(registry), {"use.deprecated.format": False})(line, VALUE)
    assert decoded(registry, written) == {"item": "x"}
    assert Encoder(client_of(registry).by_id(schema_id), "shop.Order.Line").encode(b'{"item":"x"}') == written
    with pytest.raises(SchemaError, match=r"has no message type shop\.Nothing"):
        Encoder(client_of(registry).by_id(schema_id), "shop.Nothing").encode(b"{}")


def test_a_subject_is_one_segment_of_the_url(registry: SchemaRegistry) -> None:
    for subject in ("..", ".", "a/../b", "a?b#c", "a b"):
        with pytest.raises((SchemaError, RegistryUnreachable)):
            client_of(registry).of_subject(subject, "..")
    segments = ["%2E%2E", "%2E", "a%2F..%2Fb", "a%3Fb%23c", "a%20b"]
    assert registry.requests == [f"GET /subjects/{segment}/versions/%2E%2E" for segment in segments]


def test_schemas_are_fetched_once(registry: SchemaRegistry) -> None:
    number = registry.register("s", '"long"')
    decoder = Decoder(client_of(registry))
    for _ in range(3):
        assert decoder.decode(header_of(number) + b"\x02").text == "1"
        with pytest.raises(SchemaError, match="has no schema with id 9: Schema not found"):
            decoder.decode(header_of(9) + b"\x02")
    assert registry.requests == [f"GET /schemas/ids/{number}", "GET /schemas/ids/9"]


@for_rows(
    "schema, kind, payload, problem",
    [
        ('"long"', "AVRO", b"", "schema 1: it is not a value of its schema: EOFError"),
        ('"long"', "AVRO", b"\x02\x02", "schema 1: its value is followed by further bytes"),
        ('"bytes"', "AVRO", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "schema 1: it is not a value of its schema"),
        ('{"type":"array","items":"null"}', "AVRO", b"\xfe\xff\xff\xff\x7f", "has an array whose items take no bytes"),
        ('{"type":"array","items":{"type":"fixed","name":"f","size":0}}', "AVRO", b"\x00", "items take no bytes"),
        ('{"type":"array","items":{"type":"record","name":"r","fields":[]}}', "AVRO", b"\x00", "items take no bytes"),
        (json.dumps(LIST), "AVRO", b"\x02" * 1_000_000 + b"\x00", "not a value of its schema: RecursionError"),
        ('{"type":"unknown"}', "AVRO", b"", "schema 1 is not a valid Avro schema: UnknownType"),
        ("{", "AVRO", b"", "schema 1 is not a valid Avro schema"),
        ('{"a":' * 50_000, "AVRO", b"", "schema 1 is not a valid Avro schema"),
        ("{}", "JSON", b"{", "schema 1: it is not JSON"),
        ('{"type":7}', "JSON", b"{}", "schema 1 is not a valid JSON Schema: 7 is not valid"),
        ('syntax = "proto3";', "PROTOBUF", b"\x00", "schema 1 was returned as text; kctl requires a registry that"),
        (base64.b64encode(b"\xff").decode(), "PROTOBUF", b"\x00", "schema 1 is not a valid Protobuf schema"),
        (
            base64.b64encode(FileDescriptorProto(name="x").SerializeToString()).decode(),
            "PROTOBUF",
            b"\x00",
            "indexes are not in its schema",
        ),
        (
            base64.b64encode(FileDescriptorProto(name="x").SerializeToString()).decode(),
            "PROTOBUF",
            b"\xff" * 9,
            "indexes are invalid",
        ),
        (
            base64.b64encode(FileDescriptorProto(name="x", dependency=["../y"]).SerializeToString()).decode(),
            "PROTOBUF",
            b"\x00",
            "imports ../y, which is not among its references",
        ),
        ("x", "XML", b"", "schema 1 has the type XML; supported are AVRO, PROTOBUF and JSON"),
    ],
)
def test_broken_schemas_and_values_have_a_reason(
    registry: SchemaRegistry, schema: str, kind: str, payload: bytes, problem: str
) -> None:
    number = registry.register("s", schema, kind)
    with pytest.raises(SchemaError) as raised:
        decoded(registry, header_of(number) + payload)
    assert problem.replace("schema 1", f"schema {number}") in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"{}", b"\x01" + b"\0" * 20])
def test_values_without_the_header_are_not_decoded(data: bytes) -> None:
    with pytest.raises(SchemaError, match="not in the wire format of schema registries"):
        split_header(data)


@given(st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=10), st.binary(max_size=4))
def test_message_indexes_are_read_back(path: list[int], rest: bytes) -> None:
    assert split_indexes(indexes_of(path) + rest) == (path, rest)


@given(
    st.recursive(
        st.sampled_from(["null", "long", "string", "List"]),
        lambda inner: st.one_of(
            inner.map(lambda items: {"type": "array", "items": items}),
            inner.map(lambda values: {"type": "map", "values": values}),
        ),
        max_leaves=4,
    ),
    st.binary(max_size=30),
)
def test_any_payload_decodes_or_is_refused(field: Any, payload: bytes) -> None:
    """Also arrays whose length has no bound, and types within themselves."""
    text = json.dumps({"type": "record", "name": "List", "fields": [{"name": "f", "type": field}]})
    try:
        json.loads(AvroCodec(registry_schema.Schema(1, "AVRO", text)).decode(payload))
    except SchemaError:
        return


def test_references_in_a_circle_and_too_many_are_refused(registry: SchemaRegistry) -> None:
    def reference(number: int) -> list[dict[str, Any]]:
        return [{"name": f"n{number}", "subject": f"s{number}", "version": 1}]

    registry.register("s0", '{"type":"record","name":"n0","fields":[]}', references=reference(1))
    registry.register("s1", '{"type":"record","name":"n1","fields":[]}', references=reference(0))
    with pytest.raises(SchemaError, match="circular references"):
        decoded(registry, header_of(1))
    for number in range(2, REGISTRY_REFERENCES_MAX + 4):
        registry.register(f"s{number}", f'"long" {" " * number}', references=reference(number + 1))
    with pytest.raises(SchemaError, match=f"schema 3 uses more than {REGISTRY_REFERENCES_MAX} other schemas"):
        decoded(registry, header_of(3))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[]", "returned no schema"),
        (b'{"schema":7}', "returned no schema"),
        (b'{"schema":"x","references":[{"name":"x"}]}', "a reference without name, subject and version"),
    ],
)
def test_responses_that_are_no_schema(registry: SchemaRegistry, body: bytes, problem: str) -> None:
    registry.bodies["/schemas/ids/1"] = body
    with pytest.raises(SchemaError, match=problem):
        decoded(registry, header_of(1))


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000])
def test_the_page_of_a_proxy_is_a_failure_of_the_registry(registry: SchemaRegistry, body: bytes) -> None:
    """A later request may succeed, as after no response."""
    registry.bodies["/schemas/ids/1"] = body
    with pytest.raises(RegistryUnreachable, match="returned no JSON"):
        decoded(registry, header_of(1))


def test_redirects_are_not_followed(registry: SchemaRegistry) -> None:
    registry.status = 302
    with pytest.raises(
        RegistryUnreachable, match="redirects to another address, which must be given instead: status 302"
    ):
        decoded(registry, header_of(1))
    assert len(registry.requests) == 1


def test_responses_are_bounded_in_size(registry: SchemaRegistry) -> None:
    registry.bodies["/schemas/ids/1"] = b" " * (REGISTRY_RESPONSE_BYTES_MAX + 1)
    with pytest.raises(RegistryUnreachable, match="a response is longer than"):
        decoded(registry, header_of(1))


def test_responses_are_bounded_in_time(registry: SchemaRegistry) -> None:
    """A byte now and then does not extend the time."""
    registry.bodies["/schemas/ids/1"] = b" " * 100_000
    registry.delay_s = 0.05
    with pytest.raises(RegistryUnreachable, match="it did not respond in time"):
        client_of(registry, timeout_ms=300).by_id(1)


def test_an_unreachable_registry_is_tried_again_after_a_time(registry: SchemaRegistry) -> None:
    now_s = [0.0]
    registry.authorization = "Basic x"
    number = registry.register("s", '"long"')
    decoder = Decoder(client_of(registry), lambda: now_s[0])
    for _ in range(3):
        with pytest.raises(RegistryUnreachable, match="refused the client: status 401: Unauthorized"):
            decoder.decode(header_of(number) + b"\x02")
    assert len(registry.requests) == 1
    registry.authorization = None
    now_s[0] = 31.0
    assert decoder.decode(header_of(number) + b"\x02").text == "1"


def test_the_next_url_is_used_if_one_fails(registry: SchemaRegistry) -> None:
    number = registry.register("s", '"long"')
    settings = registry_settings({}, f"http://127.0.0.1:1,{registry.url}")
    assert settings is not None
    assert RegistryClient(settings).by_id(number).text == '"long"'
    settings = registry_settings({}, "http://127.0.0.1:1")
    assert settings is not None
    with pytest.raises(RegistryUnreachable, match=r"http://127\.0\.0\.1:1 cannot be used: Connection refused"):
        RegistryClient(settings).by_id(number)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"basic.auth.user.info": "ann:s3:cret"}, basic("ann", "s3:cret")),
        ({"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "ann:x"}, basic("ann", "x")),
        ({"bearer.auth.token": "t0ken"}, "Bearer t0ken"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "t0ken"}, "Bearer t0ken"),
    ],
)
def test_configured_credentials_are_sent(registry: SchemaRegistry, properties: dict[str, str], expected: str) -> None:
    registry.authorization = expected
    number = registry.register("s", '"long"')
    assert client_of(registry, properties).by_id(number).id == number


def test_user_and_password_in_the_url_are_sent_and_not_shown(registry: SchemaRegistry) -> None:
    registry.authorization = basic("ann", "p@ss")
    registry.register("s", '"long"')
    settings = registry_settings({}, registry.url.replace("://", "://ann:p%40ss@"))
    assert settings is not None
    assert RegistryClient(settings).by_id(1).id == 1
    with pytest.raises(SchemaError) as raised:
        RegistryClient(settings).by_id(2)
    assert "p@ss" not in str(raised.value) + repr(settings)
    assert "ann" not in str(raised.value) + repr(settings)


@for_rows(
    "properties",
    [
        {"schema.registry.url": "ftp://x"},
        {"schema.registry.url": "http://ann:s3cret@x:port"},
        {"schema.registry.url": "http://"},
        {"schema.registry.url": "http://x/?s3cret"},
        {"schema.registry.url": "http://x\ny"},
        {"schema.registry.url": ",".join(["http://x"] * 17)},
        {"schema.registry.url": "http://x", "basic.auth.credentials.source": "SASL_INHERIT"},
        {"schema.registry.url": "http://x", "basic.auth.credentials.source": "USER_INFO"},
        {"schema.registry.url": "http://x", "bearer.auth.credentials.source": "OAUTHBEARER"},
        {"schema.registry.url": "http://x", "bearer.auth.token": "s3cret\ninjected: 1"},
    ],
)
def test_wrong_settings_are_refused_without_their_secrets(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        registry_settings(properties)
    assert "s3cret" not in str(raised.value)


def test_tls_registry_is_verified_with_the_trust_store(tmp_path: Path) -> None:
    authority = CertificateAuthority.create(tmp_path)
    server = authority.issue("registry", hosts=("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.pem)
    with schema_registry(context) as registry:
        registry.register("s", '"long"')
        trust = {"ssl.truststore.location": str(authority.pem), "ssl.truststore.type": "PEM"}
        assert client_of(registry, trust).by_id(1).text == '"long"'
        with pytest.raises(RegistryUnreachable, match="certificate"):
            client_of(registry).by_id(1)


def test_properties_without_a_registry_give_no_settings() -> None:
    assert registry_settings({}) is None


def test_avro_of_fastavro_is_the_same(registry: SchemaRegistry) -> None:
    """The judge of the bytes is not kctl's encoder."""
    number = registry.register("s", json.dumps(LIST))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(LIST), {"next": {"next": None}})
    assert decoded(registry, header_of(number) + out.getvalue()) == {"next": {"List": {"next": None}}}
