"""`consume --decode`, `produce --value-schema` and masking, as command lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.records.conditions import Path as WherePath
from kctl.admin.records.selection import Masking, MaskingRules, masking, masking_rules
from kctl.client.registry.schema import header_of
from kctl.commands.consume.presenting import MaskingTooSlow, timed_substitute
from kctl.commands.reading import searches
from kctl.commands.reading.searches import SEARCHED_BYTES_MAX
from kctl.errors import UsageError
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers.schema_registry import SchemaRegistry, basic, schema_registry
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_records import stdin

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "status", "type": "string"}],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as started:
        started.register("orders-value", json.dumps(ORDER))
        yield started


@pytest.fixture
def orders(cluster: FakeCluster) -> FakeCluster:
    """Two orders in Avro with schema 1, a tombstone, a value in no wire format, and one with an unknown schema."""
    (log,) = cluster.create("orders")
    values = [header_of(1) + b"\x0e\x06new", header_of(1) + b"\x10\x08paid", None, b"plain", header_of(9) + b"x"]
    for value in values:
        log.append(build_batch([Record(0, 0, b"k", value)]))
    return cluster


def test_decoded_values_are_json_and_others_stay_available(
    kctl: Kctl, orders: FakeCluster, registry: SchemaRegistry
) -> None:
    ran = kctl(f"consume orders --decode value --format jsonl --schema-registry {registry.url}")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [(row["value"], row["value_encoding"], row["value_schema_id"]) for row in rows] == [
        ({"id": 7, "status": "new"}, "json", 1),
        ({"id": 8, "status": "paid"}, "json", 1),
        (None, None, None),
        ("plain", "utf-8", None),
        ("\0\0\0\0\tx", "utf-8", None),
    ]
    assert ran.status == 1
    assert ran.err.splitlines() == [
        (
            "kctl: warning: orders-0 at offset 3: the value is not decoded: it is not in the wire format of schema"
            " registries: a zero byte and a schema id"
        ),
        (
            f"kctl: warning: orders-0 at offset 4: the value is not decoded: the schema registry {registry.url} has no"
            " schema with id 9: Schema not found"
        ),
    ]


def test_conditions_and_formats_apply_to_decoded_values(
    kctl: Kctl, orders: FakeCluster, registry: SchemaRegistry
) -> None:
    consume = f"consume orders -n 2 --until 2 --decode value --schema-registry {registry.url}"
    ran = kctl(f"{consume} --where", 'value.status == "paid"')
    assert (ran.status, [row[4] for row in ran.rows]) == (0, ['{"id": 8, "status": "paid"}'])
    assert kctl(f"{consume} -f", "%V %v\\n").out == '26 {"id": 7, "status": "new"}\n27 {"id": 8, "status": "paid"}\n'
    assert kctl(f"{consume} --value-only -n 1").out == '{"id": 7, "status": "new"}\n'


def test_the_last_records_are_counted_once_if_they_are_not_decoded(
    kctl: Kctl, orders: FakeCluster, registry: SchemaRegistry
) -> None:
    orders.topics["orders"][0].append(build_batch([Record(0, 0, b"k", b"plain too")]))
    consume = f"consume orders --last 3 --decode value --schema-registry {registry.url}"
    for selection in ("", "--key k"):
        ran = kctl(f"{consume} {selection}")
        assert [row[1] for row in ran.rows] == ["3", "4", "5"]
        counts = [line.partition(": ")[0] for line in ran.err.splitlines() if not line.startswith("kctl: warning")]
        assert counts == ["2 records"], ran


def test_the_registry_and_its_credentials_are_properties(
    kctl: Kctl, orders: FakeCluster, registry: SchemaRegistry, tmp_path: Path
) -> None:
    registry.authorization = basic("ann", "s3cret")
    file = tmp_path / "client.properties"
    file.write_text(f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info=ann:s3cret\n")
    file.chmod(0o600)
    consume = f"consume orders --until 2 --decode value --command-config {file}"
    assert [row[4] for row in kctl(consume).rows] == ['{"id": 7, "status": "new"}', '{"id": 8, "status": "paid"}']
    file.chmod(0o644)
    assert "contains secrets, and every user can read it" in kctl(consume).err
    file.write_text(f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info=ann:wrong-s3cret\n")
    ran = kctl(consume)
    assert ran.status == 1
    assert "refused the client: status 401: Unauthorized" in ran.err
    assert "2 records: the value is not decoded" in ran.err
    assert "s3cret" not in ran.err + ran.out


@for_rows(
    "line",
    [
        "consume orders --decode value",
        "consume orders --schema-registry http://127.0.0.1:1",
        "consume orders --decode value --schema-registry nonsense",
        "consume orders --decode value --formatter offsets --schema-registry http://127.0.0.1:1",
        "produce orders --schema-registry http://127.0.0.1:1",
        "produce orders --value-schema latest",
        "produce orders --value-schema id:x --schema-registry http://127.0.0.1:1",
        "produce orders --value-schema latest# --schema-registry http://127.0.0.1:1",
    ],
)
def test_wrong_options_are_refused(kctl: Kctl, orders: FakeCluster, line: str) -> None:
    assert kctl(line).status == 2


@pytest.mark.parametrize("schema", ["latest", "orders-value", "orders-value:1", "orders-value:latest", "id:1"])
def test_values_are_encoded_by_a_schema(
    kctl: Kctl, cluster: FakeCluster, registry: SchemaRegistry, schema: str
) -> None:
    cluster.create("orders")
    with stdin(b'{"id":7,"status":"new"}\n{"id":8,"status":"paid"}\n'):
        ran = kctl(f"produce orders --schema-registry {registry.url} --value-schema {schema}")
    assert ran.status == 0
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext("orders", MessageField.VALUE)
    assert [read(record.value, context) for record in cluster.records_of("orders", 0)] == [
        {"id": 7, "status": "new"},
        {"id": 8, "status": "paid"},
    ]


def test_what_consume_decodes_produce_encodes(kctl: Kctl, orders: FakeCluster, registry: SchemaRegistry) -> None:
    orders.create("copy")
    options = f"--schema-registry {registry.url}"
    lines = kctl(f"consume orders --until 3 --decode value --format jsonl {options}").out
    with stdin(lines.encode()):
        assert kctl(f"produce copy --input jsonl --value-schema orders-value {options}").status == 0
    copied = [(record.key, record.value) for record in orders.records_of("copy", 0)]
    assert copied == [(record.key, record.value) for record in orders.records_of("orders", 0)[:3]]


def test_a_value_that_does_not_fit_its_schema_is_named_and_what_came_before_is_written(
    kctl: Kctl, cluster: FakeCluster, registry: SchemaRegistry
) -> None:
    cluster.create("orders")
    with stdin(b'{"id":7,"status":"new"}\n{"id":"x"}\n'):
        ran = kctl(f"produce orders --schema-registry {registry.url} --value-schema latest")
    assert ran.status == 2
    assert "standard input line 2: it is not a value of the schema, in the JSON encoding of Avro" in ran.err
    assert len(cluster.records_of("orders", 0)) == 1


def test_a_schema_that_does_not_exist_stops_before_anything_is_written(
    kctl: Kctl, cluster: FakeCluster, registry: SchemaRegistry
) -> None:
    cluster.create("orders")
    ran = kctl(f"produce orders --schema-registry {registry.url} --value-schema nothing:3")
    assert ran.status == 1
    assert f"the schema registry {registry.url} has no version 3 of the subject nothing" in ran.err


# Masking.


def mask(data: bytes, *paths: str, regexes: tuple[str, ...] = ()) -> bytes | None:
    """A value as it is shown."""
    rules = masking(MaskingRules(paths, regexes), timed_substitute)
    assert rules is not None
    return rules.value(data)


@for_rows(
    "data, path, shown",
    [
        (b'{"a":1,"password":"x"}', "value.password", b'{"a":1,"password":"***"}'),
        (b'{"password":{"x":1}}', "value.password", b'{"password":"***"}'),
        (b'{"p":"1","p":"2"}', "value.p", b'{"p":"***","p":"***"}'),
        (b'{"u":[{"p":"1"},{"p":"2"}]}', "value.u.p", b'{"u":[{"p":"***"},{"p":"***"}]}'),
        (b'{"u":[{"p":"1"},{"p":"2"}]}', "value.u[1].p", b'{"u":[{"p":"1"},{"p":"***"}]}'),
        (b'{"\\u0070":"1"}', "value.p", b'{"p":"***"}'),
        (b'{"n":1.10,"e":1e400,"p":1}', "value.p", b'{"n":1.10,"e":1e400,"p":"***"}'),
        (b'{ "a" : 1 }', "value.p", b'{ "a" : 1 }'),
        (b'{"a":1}', "value", b"***"),
        (b'{"password":"x"', "value.password", b"***"),
        (b"\xff\xfe", "value.password", b"***"),
        (b'{"a":1}', "key.a", b'{"a":1}'),
        (b"[" * 100_000, "value.a", b"***"),
    ],
)
def test_values_at_paths_are_masked(data: bytes, path: str, shown: bytes) -> None:
    assert mask(data, path) == shown


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        max_leaves=8,
    )
)
def test_nothing_below_a_masked_path_is_shown(value: object) -> None:
    document = {"a": {"b": value}, "c": value}
    shown = mask(json.dumps(document).encode(), "value.a.b")
    assert shown is not None
    assert json.loads(shown) == {"a": {"b": "***"}, "c": value}


def test_matches_are_masked_in_keys_values_and_headers() -> None:
    rules = masking(MaskingRules((), (r"\d{4}-\d{4}",)), timed_substitute)
    assert rules is not None
    assert rules.key(b"card 1234-5678") == b"card ***"
    assert rules.value(b"\xff1234-5678") == b"\xff***"
    assert rules.headers((("n", b"1234-5678"), ("null", None))) == (("n", b"***"), ("null", None))


def test_headers_are_masked_by_name() -> None:
    headers = (("auth", b"x"), ("other", b"y"))
    assert Masking(masking_paths("headers.auth")).headers(headers) == (("auth", b"***"), ("other", b"y"))
    assert Masking(masking_paths("headers")).headers(headers) == (("auth", b"***"), ("other", b"***"))


def masking_paths(path: str) -> tuple[WherePath, ...]:
    rules = masking(MaskingRules((path,)), timed_substitute)
    assert rules is not None
    return rules.paths


def test_masking_fails_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "TIME_S_MAX", 0.2)
    assert mask(b"x" * (SEARCHED_BYTES_MAX + 1), regexes=("secret",)) == b"***"
    with pytest.raises(MaskingTooSlow):
        mask(b"a" * 40 + b"!", regexes=("(a|aa)+$",))


@for_rows(
    "paths, regexes, error",
    [
        (("password",), (), "--mask: expected a field"),
        (("value.a == 1",), (), "'and', 'or' or the end, not '==' at position 9"),
        (("offset",), (), "offset cannot be masked"),
        ((), ("(",), "--mask-regex: '(' is not a valid regular expression"),
        ((), ("",), "--mask-regex takes 1 to"),
        (("value.a",) * 1_001, (), "more than 1,000 masking rules"),
    ],
)
def test_invalid_rules_are_refused(paths: tuple[str, ...], regexes: tuple[str, ...], error: str) -> None:
    with pytest.raises(UsageError) as raised:
        masking(MaskingRules(paths, regexes), timed_substitute)
    assert error in str(raised.value)


def test_masking_rules_are_read_from_properties() -> None:
    assert masking_rules({}) == MaskingRules()
    assert masking_rules({"kctl.mask.paths": "value.a\n key.b", "kctl.mask.regex": "a b"}) == MaskingRules(
        ("value.a", "key.b"), ("a b",)
    )


@pytest.mark.parametrize("how", ["", "--format json", "--format jsonl", "--value-only", "-f %K%k%V%v%h"])
def test_no_output_contains_what_is_masked(kctl: Kctl, cluster: FakeCluster, tmp_path: Path, how: str) -> None:
    (log,) = cluster.create("orders")
    value = b'{"user":"ann","password":"s3cret","note":"card 1234-5678"}'
    log.append(build_batch([Record(0, 0, b"1234-5678", value, (("token", b"s3cret"),))]))
    file = tmp_path / "profile.properties"
    file.write_text("kctl.mask.paths=value.password headers.token\n")
    ran = kctl(f"consume orders {how} --command-config {file} --mask-regex", r"\d{4}-\d{4}")
    assert ran.status == 0
    assert "ann" in ran.out
    assert "s3cret" not in ran.out
    assert "1234" not in ran.out
    assert kctl(f"consume orders --command-config {file} --grep s3cret --expect 0").status == 0


def test_masks_apply_to_decoded_values(kctl: Kctl, orders: FakeCluster, registry: SchemaRegistry) -> None:
    ran = kctl(
        f"consume orders --until 1 --decode value --schema-registry {registry.url} --format jsonl --mask value.status"
    )
    assert json.loads(ran.out)["value"] == {"id": 7, "status": "***"}
