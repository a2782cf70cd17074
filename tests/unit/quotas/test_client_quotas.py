"""Which quota applies to which client, and what is kept about clients."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

import pytest

from kctl.config.dynamic import ConfigView
from kctl.limits import QUOTA_NAME_CHARACTERS_MAX
from kctl.security.quotas import CLIENT_KEYS, DEFAULT, QuotaEntity, QuotaGroup
from kctl.server.requests.quotas.client_quotas import QUOTA_CLIENTS_MAX, QUOTA_GROUPS_MAX, ClientQuotas
from kctl.server.requests.quotas.limits import QuotaLimits
from kctl.server.requests.quotas.meters import INACTIVE_MS
from tests.rows import for_rows

ALICE = "User:alice"

LEVELS = {
    QuotaEntity("alice", "app"): QuotaGroup("alice", "app"),
    QuotaEntity("alice", DEFAULT): QuotaGroup("alice", "app"),
    QuotaEntity("alice", None): QuotaGroup("alice", ""),
    QuotaEntity(DEFAULT, "app"): QuotaGroup("alice", "app"),
    QuotaEntity(DEFAULT, DEFAULT): QuotaGroup("alice", "app"),
    QuotaEntity(DEFAULT, None): QuotaGroup("alice", ""),
    QuotaEntity(None, "app"): QuotaGroup("", "app"),
    QuotaEntity(None, DEFAULT): QuotaGroup("", "app"),
}
"""The levels of KIP-55 in their order, with the tags of Kafka's metric for user alice and client id app."""


class ManualClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


async def hosts(name: str) -> str | None:
    return {"localhost": "127.0.0.1"}.get(name)


def quotas(configs: Mapping[str, Mapping[str, str]], properties: Mapping[str, str] | None = None) -> ClientQuotas:
    made = ClientQuotas(ConfigView(properties or {}).current, ManualClock(), hosts)
    asyncio.run(made.replace(configs))
    return made


def produce_limit(made: ClientQuotas, principal: str, client_id: str) -> float | None:
    client = made.client(principal, client_id)
    return None if client is None or client.produce is None else client.produce.limit


@for_rows("present", range(1 << len(LEVELS)))
def test_the_most_specific_entity_with_a_quota_decides(present: int) -> None:
    """All 256 combinations of the eight levels."""
    limits = QuotaLimits()
    expected = None
    for number, entity in enumerate(LEVELS):
        if present & 1 << number:
            limits.set(entity, float(number + 1))
            expected = expected or entity
    found = limits.limit_of("alice", "app")
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.entity, found.group) == (expected, LEVELS[expected])
        assert found.value == list(LEVELS).index(expected) + 1


def test_quotas_of_client_ids_do_not_apply_to_an_empty_client_id() -> None:
    limits = QuotaLimits(fallback=1.0)
    for entity in LEVELS:
        limits.set(entity, 5.0)
    limits.set(QuotaEntity(None, ""), 6.0)
    found = limits.limit_of("alice", "")
    assert found is not None
    assert found.entity == QuotaEntity("alice", None)
    limits.keep([])
    assert limits.limit_of("alice", "") is None
    assert limits.limit_of("alice", "app") == (1.0, QuotaEntity(None, DEFAULT), QuotaGroup("", "app"))


def test_each_kind_of_quota_is_found_by_itself() -> None:
    made = quotas({
        "users/alice": {"producer_byte_rate": "100"},
        "clients/app": {"consumer_byte_rate": "200", "request_percentage": "30.5"},
        "users/<default>/clients/<default>": {"controller_mutation_rate": "4"},
        "users/bob": {"SCRAM-SHA-256": "salt=..."},
    })  # fmt: skip
    client = made.client(ALICE, "app")
    assert client is not None
    meters = (client.produce, client.fetch, client.request, client.mutation)
    assert [meter and meter.limit for meter in meters] == [100, 200, 30.5, 4]


def test_clients_of_a_user_share_the_rate_of_a_user_quota_and_only_that() -> None:
    made = quotas({"users/alice": {"producer_byte_rate": "100"}, "clients/<default>": {"producer_byte_rate": "7"}})
    one, two, other = made.client(ALICE, "one"), made.client(ALICE, "two"), made.client("User:bob", "one")
    assert one is not None
    assert two is not None
    assert other is not None
    assert one.produce is two.produce
    assert other.produce is not one.produce
    assert other.produce is not None
    assert other.produce.limit == 7


def test_quotas_of_the_configuration_file_apply_to_each_client_id_without_another() -> None:
    made = quotas({}, {"quota.producer.default": "1000"})
    assert produce_limit(made, ALICE, "app") == 1000
    asyncio.run(made.change("clients/app", {"producer_byte_rate": "5"}))
    assert produce_limit(made, ALICE, "app") == 5
    assert produce_limit(made, ALICE, "other") == 1000


def test_a_changed_quota_applies_to_clients_that_are_known() -> None:
    made = quotas({"users/alice": {"producer_byte_rate": "100"}})
    before = made.client(ALICE, "app")
    assert before is not None
    assert before.produce is not None
    before.produce.record(10**6, 0)
    asyncio.run(made.change("users/alice", {"producer_byte_rate": "50"}))
    after = made.client(ALICE, "app")
    assert after is not None
    assert after.produce is before.produce
    assert after.produce.limit == 50
    asyncio.run(made.change("users/alice", {}))
    assert made.client(ALICE, "app") is None


def test_names_are_decoded_from_znodes() -> None:
    made = quotas({"users/CN%3Dalice%2C%20O%3Dx/clients/a%2Fb": {"producer_byte_rate": "9"}})
    assert produce_limit(made, "User:CN=alice, O=x", "a/b") == 9
    assert produce_limit(made, "User:CN=alice, O=x", "a") is None


@pytest.mark.parametrize("value", ["", "many", "nan", "NaN"])
def test_an_invalid_stored_value_is_logged_and_changes_nothing(value: str, caplog: pytest.LogCaptureFixture) -> None:
    made = quotas({"users/alice": {"producer_byte_rate": "100", "consumer_byte_rate": "100"}})
    asyncio.run(made.change("users/alice", {"producer_byte_rate": value, "consumer_byte_rate": "7"}))
    client = made.client(ALICE, "app")
    assert client is not None
    assert [meter and meter.limit for meter in (client.produce, client.fetch)] == [100, 7]
    assert "producer_byte_rate is not a number" in caplog.text


def test_an_invalid_stored_value_is_logged_once_and_the_limit_stays_in_a_new_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = quotas({"users/alice": {"producer_byte_rate": "100"}, "users/bob": {"producer_byte_rate": "5"}})
    for _ in range(3):
        asyncio.run(made.replace({"users/alice": {"producer_byte_rate": "many"}, "users/bob": None, "clients/c": {}}))
        assert (produce_limit(made, ALICE, "app"), produce_limit(made, "User:bob", "app")) == (100, 5)
    assert caplog.text.count("producer_byte_rate is not a number") == 1
    asyncio.run(made.replace({"clients/c": {}}))
    assert (produce_limit(made, ALICE, "app"), produce_limit(made, "User:bob", "app")) == (None, None)


@pytest.mark.parametrize("path", ["users/a/clients", "users/a/b/c", "topics/x", "users"])
def test_a_path_that_names_no_entity_is_logged(path: str, caplog: pytest.LogCaptureFixture) -> None:
    made = quotas({path: {"producer_byte_rate": "1"}})
    assert made.client("User:a", "c") is None
    assert "neither a user nor a client id" in caplog.text


def test_rates_of_connections_are_found_by_address() -> None:
    made = quotas({
        "ips/<default>": {"connection_creation_rate": "10"},
        "ips/10.0.0.1": {"connection_creation_rate": "3"},
        "ips/localhost": {"connection_creation_rate": "0"},
        "ips/0%3A0%3A0%3A0%3A0%3A0%3A0%3A1": {"connection_creation_rate": "4"},
        "ips/%3A%3Affff%3A10.0.0.3": {"connection_creation_rate": "5"},
    })  # fmt: skip
    rates = {"10.0.0.1": 3, "10.0.0.2": 10, "127.0.0.1": 0, "::1": 4, "10.0.0.3": 5}
    assert {ip: made.connection_rate_of(ip) for ip in rates} == rates
    asyncio.run(made.change("ips/<default>", {}))
    asyncio.run(made.change("ips/10.0.0.1", {}))
    assert [made.connection_rate_of(ip) for ip in ("10.0.0.1", "10.0.0.2")] == [None, None]


@pytest.mark.long
def test_what_is_kept_about_many_client_ids_is_bounded() -> None:
    made = quotas({"clients/<default>": dict.fromkeys(CLIENT_KEYS, "5")})
    for number in range(QUOTA_GROUPS_MAX + 2_000):
        client = made.client(ALICE, f"client-{number}")
        assert client is not None
    assert all(len(groups) <= QUOTA_GROUPS_MAX for groups in made.readings().values())
    for number in range(100):
        made.client(ALICE, f"{number}" + "x" * 30_000)
    for group in itertools.chain(*made.readings().values()):
        assert len(group.user) + len(group.client_id) <= QUOTA_NAME_CHARACTERS_MAX
    unlimited = quotas({"clients/other": {"producer_byte_rate": "5"}})
    for number in range(QUOTA_CLIENTS_MAX + 10):
        assert unlimited.client(ALICE, f"client-{number}") is None
    assert unlimited.readings()["producer_byte_rate"] == {}


def test_long_names_that_differ_at_the_end_are_different_clients() -> None:
    made = quotas({"clients/<default>": {"producer_byte_rate": "5"}})
    first, second = (made.client(ALICE, "x" * 1000 + end) for end in "ab")
    again = made.client(ALICE, "x" * 1000 + "a")
    assert first is not None
    assert second is not None
    assert again is not None
    assert first.produce is again.produce
    assert first.produce is not second.produce


def test_the_usage_of_a_client_without_requests_for_an_hour_is_removed() -> None:
    clock = ManualClock()
    made = ClientQuotas(ConfigView({}).current, clock, hosts)
    asyncio.run(made.replace({"clients/<default>": {"producer_byte_rate": "5"}}))
    made.client(ALICE, "old")
    clock.at_ms = INACTIVE_MS
    made.client(ALICE, "new")
    assert list(made.readings()["producer_byte_rate"]) == [QuotaGroup("", "new")]


@pytest.mark.long
def test_the_usage_of_clients_in_use_survives_many_others() -> None:
    made = quotas({"clients/<default>": {"producer_byte_rate": "5"}})
    clock = made._clock
    assert isinstance(clock, ManualClock)
    for number in range(QUOTA_GROUPS_MAX + 100):
        clock.at_ms += 1
        busy = made.client(ALICE, "busy")
        assert busy is not None
        assert busy.produce is not None
        busy.produce.add(1, clock.at_ms)
        made.client(ALICE, f"client-{number}")
    reading = made.readings()["producer_byte_rate"][QuotaGroup("", "busy")]
    assert reading.usage > 0
