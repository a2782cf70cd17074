"""Names that are equal to a word with another meaning: `<default>`, `*`, `-`, `default` and separators of names."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.state.document import Scope, entity_key
from kctl.commands.configs.describe import filters, shown_name
from kctl.commands.frame.command import with_names_from_input
from kctl.commands.frame.exit_status import ExitStatus
from kctl.security.quotas import DEFAULT, DEFAULT_NAME, QuotaEntity, name_text, parse_name
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.quota_cluster import FakeEntity, QuotaCluster

RATE = "producer_byte_rate"
NAMES = [
    *(DEFAULT_NAME, f"+{DEFAULT_NAME}", f"++{DEFAULT_NAME}", "(default)", "default", "*", "+*", "-", "null", "any"),
    *("alice,client-id=app", "alice+", "alice/clients/app", "CN=alice,OU=x", "DOM\\alice", "~", "", "true", "user=x"),
]
NAME = st.none() | st.sampled_from(NAMES[:-1]) | st.text(st.sampled_from("+<>default,=*-/ci"), min_size=1, max_size=12)


def entities(name: str | None) -> list[FakeEntity]:
    return [(("user", name),), (("client-id", name),), (("user", name), ("client-id", "app")), (("ip", name),)]


@pytest.fixture
def quotas(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuotaCluster]:
    """Each name as user, client id, pair and address, and the defaults, with a quota of its own."""
    with QuotaCluster() as cluster:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", cluster.bootstrap)
        numbers = itertools.count(1)
        for name in [None, *filter(None, NAMES)]:
            for entity in entities(name):
                key = "connection_creation_rate" if entity[0][0] == "ip" else RATE
                cluster.quotas[entity] = {key: float(next(numbers))}
        yield cluster


@given(name=NAME)
def test_the_text_of_a_name_is_that_of_no_other(name: str | None) -> None:
    assert parse_name(name_text(name)) == name


@given(one=st.tuples(NAME, NAME | st.just("none")), other=st.tuples(NAME, NAME | st.just("none")))
def test_the_texts_of_two_entities_differ(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> None:
    def entity(names: tuple[str | None, str | None]) -> FakeEntity:
        user, client = names
        return (("user", user),) if client == "none" else (("user", user), ("client-id", client))

    if entity(one) != entity(other):
        assert entity_key(entity(one)) != entity_key(entity(other))
        assert shown_name(entity(one)) != shown_name(entity(other))


def test_an_export_of_quotas_is_accepted_and_changes_nothing_and_can_be_applied_elsewhere(
    kctl: Kctl, quotas: QuotaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "cluster.yaml"
    document.write_text(kctl("plan --export").out)
    same = kctl(f"plan {document}")
    assert (same.status, same.out) == (ExitStatus.DONE, ""), same.err
    with QuotaCluster() as other:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", other.bootstrap)
        assert kctl(f"apply {document} --yes").status == ExitStatus.DONE
        assert other.quotas == quotas.quotas


def test_parts_of_an_entity_in_another_order_are_the_same_entity(
    kctl: Kctl, quotas: QuotaCluster, tmp_path: Path
) -> None:
    quotas.quotas = {(("client-id", "app"), ("user", "alice")): {RATE: 1.0}}
    document = tmp_path / "cluster.yaml"
    document.write_text("version: 1\nquotas: [{user: alice, client_id: app, values: {producer_byte_rate: 1}}]\n")
    assert kctl(f"plan {document}").status == ExitStatus.DONE


def test_quotas_of_the_user_called_default_and_of_the_default_user_are_apart(kctl: Kctl, quotas: QuotaCluster) -> None:
    default, called = quotas.quotas[("user", None),], quotas.quotas[("user", DEFAULT_NAME),]
    assert kctl("quotas alter --yes --producer-rate 1000 --user", DEFAULT_NAME).rows[0][0] == f"+{DEFAULT_NAME}"
    assert (called[RATE], default[RATE]) == (1000, 1)
    assert kctl("quotas alter --yes --producer-rate 2000 --default-user").rows[0][0] == DEFAULT_NAME
    assert (called[RATE], default[RATE]) == (1000, 2000)
    shown = [row[0] for row in kctl("quotas describe").rows if row[1:3] == ["-", "-"]]
    assert len(shown) == len(set(shown)), shown
    decided = [kctl("quotas check --format json --user", name).document[0]["entity"] for name in ("(default)", "bob")]
    assert decided == ["user +(default)", "user (default)"]
    assert str(QuotaEntity("(default)", DEFAULT)) == "user +(default), client-id (default)"


def test_configs_name_the_user_called_default_with_a_plus(kctl: Kctl, quotas: QuotaCluster) -> None:
    default, called = quotas.quotas[("user", None),], quotas.quotas[("user", DEFAULT_NAME),]
    line = f"configs alter user --set {RATE}="
    assert kctl(f"{line}3000", DEFAULT_NAME).status == ExitStatus.DONE
    assert kctl(f"{line}4000", f"+{DEFAULT_NAME}").status == ExitStatus.DONE
    assert (default[RATE], called[RATE]) == (3000, 4000)
    for name in (DEFAULT_NAME, f"+{DEFAULT_NAME}"):
        assert {item["name"] for item in kctl("configs describe user --format json", name).document} == {name}
    assert kctl(f"configs alter user alice --client +* --set {RATE}=7").status == ExitStatus.DONE
    assert quotas.quotas[("user", "alice"), ("client-id", "*")][RATE] == 7
    assert len(filters("user", ["alice"], "*")[0]) == 2
    assert filters("user", ["alice"], "*")[0][1].is_any
    assert filters("user", ["alice"], "+*")[0][1].name == "*"


def test_a_scram_user_called_default_is_not_shown_as_the_default(kctl: Kctl, quotas: QuotaCluster) -> None:
    quotas.scram_users = {DEFAULT_NAME: 4096, "alice/clients/app": 4096}
    found = {item["name"]: item["configs"] for item in kctl("configs describe user --format json").document}
    mechanisms = {name for name, configs in found.items() if any("SCRAM" in config["property"] for config in configs)}
    assert mechanisms == {f"+{DEFAULT_NAME}", "alice+/clients/app"}


def test_managed_quotas_are_those_of_the_pattern_only() -> None:
    pair, user = (("user", "alice"), ("client-id", "app")), (("user", "alice,client-id=app"),)
    scope = Scope(quotas=["user=alice,client-id=*"])
    assert (scope.has_quota(pair), scope.has_quota(user)) == (True, False)
    assert Scope(quotas=["user=CN=alice,OU=x*"]).has_quota((("user", "CN=alice,OU=x,O=y"),))
    assert Scope(quotas=["user=DOM\\*"]).has_quota((("user", "DOM\\alice"),))
    everyone, bob = Scope(users=["[*]"]), Scope(users=["*"])
    assert (everyone.has_user("*"), everyone.has_user("bob"), bob.has_user("bob")) == (True, False, True)


def test_a_group_or_topic_called_minus_is_named_with_a_plus(kctl: Kctl, cluster: FakeCluster) -> None:
    assert with_names_from_input(["+-", "++-", "a", "+a"]) == ["-", "+-", "a", "+a"]
    for name in ("-", "--all", "all", "null"):
        cluster.create(name)
        cluster.groups[name] = FakeGroup()
    for argument, name in (("+-", "-"), ("--all", "--all"), ("all", "all"), ("null", "null")):
        assert {row["topic"] for row in kctl("topics describe --format json --", argument).document} == {name}
        assert kctl("groups describe --show state --format json --", argument).document[0]["group"] == name
    assert {row["topic"] for row in kctl("topics describe --format json --topic-regex=-").document} == {"-"}


def test_a_topic_or_group_called_default_is_not_shown_as_the_default_of_brokers(
    kctl: Kctl, cluster: FakeCluster
) -> None:
    cluster.create("default")
    ran = kctl("configs alter topic default --set retention.ms=1 --compat kafka-3")
    assert ran.out == "Completed updating config for topic default.\n"


def test_a_property_with_the_value_null_is_not_one_without_a_value(
    kctl: Kctl, cluster: FakeCluster, tmp_path: Path
) -> None:
    for number, value in enumerate(("null", "~", "", "true", "-", "<default>", "'x'")):
        cluster.create(f"t{number}")
        cluster.configs[f"t{number}"] = {"confluent.placement": value}
    document = tmp_path / "cluster.yaml"
    document.write_text(kctl("plan --export").out)
    same = kctl(f"plan {document} --format json")
    assert json.loads(same.out or "[]") == [], same.err
