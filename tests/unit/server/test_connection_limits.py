"""Limits of connections: Kafka's ConnectionQuotas, with an injected time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.config_loading import load_broker_config
from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ConfigError, ErrorCode
from kctl.server.network.connection_limits import (
    ConnectionLimits,
    LimitSettings,
    ListenerLimits,
    RateWindow,
    limit_settings,
)
from kctl.server.network.limit_updates import LIMITED_HOSTS_MAX, LimitUpdates
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows

OVERRIDES = "max.connections.per.ip.overrides"


def test_the_maximum_of_the_broker_stops_all_listeners_except_the_protected_one() -> None:
    limits = ConnectionLimits(LimitSettings(connections=2, protected_listener="INTERNAL"))
    for address in ("1.1.1.1", "1.1.1.2"):
        assert limits.has_slot("EXTERNAL")
        assert limits.admit("EXTERNAL", address, 0).refusal is None
    assert not limits.has_slot("EXTERNAL")
    assert limits.has_slot("INTERNAL")
    assert not limits.has_excess()
    limits.admit("INTERNAL", "1.1.1.3", 0)
    assert limits.has_excess()
    assert limits.is_closable("EXTERNAL")
    assert not limits.is_closable("INTERNAL")
    limits.released("EXTERNAL", "1.1.1.1")
    assert not limits.has_excess()


def test_the_maximum_of_a_listener_holds_for_the_protected_one_too() -> None:
    limits = ConnectionLimits(
        LimitSettings(listeners={"INTERNAL": ListenerLimits(connections=1)}, protected_listener="INTERNAL")
    )
    limits.admit("INTERNAL", "1.1.1.1", 0)
    assert not limits.has_slot("INTERNAL")
    limits.released("INTERNAL", "1.1.1.1")
    assert limits.has_slot("INTERNAL")


def test_an_address_above_its_maximum_is_refused_and_not_counted() -> None:
    limits = ConnectionLimits(LimitSettings(connections_per_address=1, per_address={"2.2.2.2": 2, "3.3.3.3": 0}))
    assert limits.admit("A", "1.1.1.1", 0).refusal is None
    assert limits.admit("A", "1.1.1.1", 0).refusal == "max.connections.per.ip"
    assert limits.admit("A", "3.3.3.3", 0).refusal == "max.connections.per.ip"
    assert [limits.admit("A", "2.2.2.2", 0).refusal for _ in range(3)] == [None, None, "max.connections.per.ip"]
    assert limits.count == 3
    limits.released("A", "1.1.1.1")
    assert limits.admit("A", "1.1.1.1", 0).refusal is None


def test_a_listener_above_its_rate_pauses_and_the_protected_one_ignores_the_rate_of_the_broker() -> None:
    limits = ConnectionLimits(LimitSettings(connections_per_second=1, protected_listener="INTERNAL"))
    pauses = [limits.admit("EXTERNAL", "1.1.1.1", 0).pause_ms for _ in range(12)]
    # Windows of 10 s allow a burst of 10.
    assert pauses == [0] * 10 + [1000, 1000]
    assert limits.admit("INTERNAL", "1.1.1.1", 0).pause_ms == 0


def test_an_address_above_its_rate_is_refused_after_a_delay() -> None:
    limits = ConnectionLimits()
    limits.connection_rate_of = {"1.1.1.1": 1.0}.get
    refusals = [limits.admit("A", "1.1.1.1", 0) for _ in range(11)]
    assert [refusal.refusal for refusal in refusals[:10]] == [None] * 10
    assert refusals[10].refusal == "connection_creation_rate of its address"
    assert 0 < refusals[10].close_after_ms <= 1000
    assert limits.count == 10
    assert limits.admit("A", "9.9.9.9", 0).refusal is None


def test_an_address_that_connects_again_and_again_gets_what_its_rate_allows() -> None:
    limits = ConnectionLimits()
    limits.connection_rate_of = {"1.1.1.1": 3.0}.get
    admitted = [limits.admit("A", "1.1.1.1", now_ms).refusal is None for now_ms in range(0, 60_000, 50)]
    # Three a second, and the burst that windows of 11 s allow.
    assert 3 * 60 <= sum(admitted) <= 3 * 60 + 33


def test_connections_that_are_refused_because_of_their_address_do_not_delay_others() -> None:
    limits = ConnectionLimits(
        LimitSettings(connections_per_second=2, listeners={"A": ListenerLimits(connections_per_second=2)})
    )
    limits.connection_rate_of = {"1.1.1.1": 0.0}.get
    assert all(limits.admit("A", "1.1.1.1", 0).refusal for _ in range(100))
    assert [limits.admit("A", "9.9.9.9", 0).pause_ms for _ in range(20)] == [0] * 20


@given(
    limit=st.integers(1, 50),
    gaps_ms=st.lists(st.integers(0, 200), min_size=1, max_size=400),
)
def test_the_returned_pauses_keep_the_rate_within_the_limit_after_a_burst(limit: int, gaps_ms: list[int]) -> None:
    window, now_ms, accepted = RateWindow(), 0, 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms + window.record(now_ms, limit)
        accepted += 1
    # The burst is that of ten seconds, plus the connections of pauses that are limited to one second.
    assert accepted <= limit * (now_ms / 1000 + 11) + 1 + now_ms / 1000


def test_the_settings_come_from_the_properties() -> None:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:1,INSIDE://127.0.0.1:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "max.connections": "100",
        "max.connection.creation.rate": "10",
        "max.connections.per.ip": "5",
        "max.connections.per.ip.overrides": "10.0.0.1:50,[0:0::1]:10,::ffff:10.0.0.2:20",
        "listener.name.inside.max.connections": "7",
        "listener.name.inside.max.connection.creation.rate": "3",
    }
    settings = limit_settings(load_broker_config(properties)[0], properties)
    assert (settings.connections, settings.connections_per_second, settings.connections_per_address) == (100, 10, 5)
    assert settings.per_address == {"10.0.0.1": 50, "::1": 10, "10.0.0.2": 20}
    assert settings.listener("INSIDE") == ListenerLimits(7, 3)
    assert settings.listener("PLAINTEXT") == ListenerLimits()
    assert settings.protected_listener == "INSIDE"
    with pytest.raises(ConfigError, match="is not a whole number"):
        limit_settings(
            load_broker_config(properties)[0], {**properties, "listener.name.inside.max.connections": "many"}
        )


def test_the_only_listener_is_not_protected() -> None:
    assert limit_settings(load_broker_config({})[0], {}).protected_listener is None


def test_an_exception_that_is_no_address_and_count_is_refused() -> None:
    for text in ("host.example", "host.example:many", "a b:5", "/etc:5", ":5"):
        with pytest.raises(ConfigError, match="list of address:count pairs"):
            load_broker_config({OVERRIDES: text})


def test_rates_are_taken_over_the_windows_of_the_quotas() -> None:
    properties = {"quota.window.num": "3", "quota.window.size.seconds": "2", "max.connection.creation.rate": "2"}
    limits = ConnectionLimits(limit_settings(load_broker_config(properties)[0], properties))
    pauses = [limits.admit("PLAINTEXT", "1.1.1.1", 0).pause_ms for _ in range(20)]
    # Two whole windows of 2 s allow a burst of 8; a pause lasts at most one window.
    assert pauses[:10] == [0] * 8 + [500, 1000]
    assert pauses[-1] == 2000
    limits.connection_rate_of = {"1.1.1.2": 1.0}.get
    refusals = [limits.admit("PLAINTEXT", "1.1.1.2", 100_000).refusal for _ in range(5)]
    assert refusals == [None] * 4 + ["connection_creation_rate of its address"]


class Hosts:
    """A resolver whose names can change."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = addresses
        self.requested: list[str] = []

    async def address_of(self, name: str) -> str | None:
        self.requested.append(name)
        await asyncio.sleep(0)
        return self.addresses.get(name)


def test_host_names_are_resolved_at_start_and_when_the_property_changes(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_: SimLoop) -> None:
        hosts = Hosts(one="10.0.0.1", two="10.0.0.2")
        view, limits = ConfigView({OVERRIDES: "one:5,[0:0::1]:7"}), ConnectionLimits()
        updates = LimitUpdates(view, limits, hosts.address_of)
        await updates.start()
        assert limits.settings.per_address == {"10.0.0.1": 5, "::1": 7}
        view.set_dynamic_default({OVERRIDES: "one:6", "max.connections": "9"})
        assert (limits.settings.per_address, limits.settings.connections) == ({"10.0.0.1": 6}, 9)
        assert hosts.requested == ["one"]
        view.set_dynamic_default({OVERRIDES: "two:8"})
        view.set_dynamic_default({OVERRIDES: "two:8,one:4"})
        await asyncio.sleep(1)  # In virtual time.
        assert limits.settings.per_address == {"10.0.0.2": 8, "10.0.0.1": 4}
        view.set_dynamic_default({OVERRIDES: "three:8"})
        await asyncio.sleep(1)  # In virtual time.
        assert "three" in caplog.text
        assert limits.settings.per_address == {"10.0.0.2": 8, "10.0.0.1": 4}, "the old limits stay"
        await updates.close()

    simulate(main, seed=1)


@pytest.mark.parametrize("hosts", ["nowhere:1", ",".join(f"host{n}:1" for n in range(LIMITED_HOSTS_MAX + 1))])
def test_a_broker_does_not_start_with_hosts_that_it_does_not_resolve(hosts: str) -> None:
    async def main(_: SimLoop) -> None:
        resolver = Hosts()
        with pytest.raises(ConfigError, match=OVERRIDES):
            await LimitUpdates(ConfigView({OVERRIDES: hosts}), ConnectionLimits(), resolver.address_of).start()
        assert len(resolver.requested) <= 1

    simulate(main, seed=1)


def test_a_broker_starts_with_its_static_limits_when_a_stored_host_is_not_resolved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(_: SimLoop) -> None:
        view, limits = ConfigView({OVERRIDES: "one:5"}), ConnectionLimits()
        view.set_dynamic_default({OVERRIDES: "nowhere:1"})
        updates = LimitUpdates(view, limits, Hosts(one="10.0.0.1").address_of)
        await updates.start()
        for number in range(3):
            view.set_dynamic_default({OVERRIDES: "nowhere:1", "log.segment.bytes": f"{1000 + number}"})
            await asyncio.sleep(1)  # In virtual time.
            assert limits.settings.per_address == {"10.0.0.1": 5}
        with pytest.raises(ApiError, match="elsewhere") as caught:
            await view.validate({OVERRIDES: "elsewhere:1"}, per_broker=False)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        await updates.close()

    simulate(main, seed=1)
    assert caplog.text.count("cannot change the limits") == 1


@for_rows(
    "name, value",
    [
        ("listener.name.plaintext.max.connections", "many"),
        ("listener.name.plaintext.max.connections", "-1"),
        ("listener.name.plaintext.max.connection.creation.rate", ""),
    ],
)
@for_rows("per_broker", [True, False])
def test_an_invalid_limit_of_a_listener_is_refused(name: str, value: str, *, per_broker: bool) -> None:
    with pytest.raises(ApiError, match=name) as caught:
        asyncio.run(ConfigView({}).validate({name: value}, per_broker=per_broker))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    asyncio.run(ConfigView({}).validate({name: "5"}, per_broker=per_broker))


def test_only_limits_of_a_listener_can_be_defaults_for_all_brokers() -> None:
    """Kafka: DynamicBrokerConfig.perBrokerConfigs."""
    jaas = {"listener.name.sasl.plain.sasl.jaas.config": "secret"}
    with pytest.raises(ApiError, match="default for all brokers") as caught:
        asyncio.run(ConfigView({}).validate(jaas, per_broker=False))
    assert "secret" not in str(caught.value)
    asyncio.run(ConfigView({}).validate(jaas, per_broker=True))
