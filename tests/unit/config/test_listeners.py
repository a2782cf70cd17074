"""Listener properties as endpoints, and their errors."""

from __future__ import annotations

import pytest

from kctl.config.broker import BrokerConfig
from kctl.config.config_loading import load_broker_config
from kctl.config.definition import BrokerConfigError
from kctl.config.listeners import advertised_endpoints, inter_broker_listener, listener_endpoints
from kctl.model import Endpoint
from tests.rows import for_rows


def load(properties: dict[str, str]) -> BrokerConfig:
    return load_broker_config(properties)[0]


def problems(properties: dict[str, str]) -> list[str]:
    with pytest.raises(BrokerConfigError) as caught:
        load_broker_config(properties)
    return [str(problem) for problem in caught.value.problems]


def test_listeners_default_to_loopback() -> None:
    expected = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert listener_endpoints(BrokerConfig()) == expected
    assert advertised_endpoints(BrokerConfig()) == expected


def test_the_old_properties_still_work() -> None:
    config = load({"host.name": "::1", "port": "1", "advertised.host.name": "public", "advertised.port": "2"})
    assert listener_endpoints(config) == (Endpoint("PLAINTEXT", "::1", 1),)
    assert advertised_endpoints(config) == (Endpoint("PLAINTEXT", "public", 2),)


def test_listeners_are_advertised_unless_something_else_is() -> None:
    config = load({"listeners": "PLAINTEXT://:9092"})
    assert listener_endpoints(config) == advertised_endpoints(config) == (Endpoint("PLAINTEXT", "", 9092),)
    config = load({"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://kafka.example:19092"})
    assert advertised_endpoints(config) == (Endpoint("PLAINTEXT", "kafka.example", 19092),)


def test_names_of_listeners_are_upper_case_and_mapped_to_protocols() -> None:
    config = load(
        {
            "listeners": "internal://127.0.0.1:1, External://[::1]:2",
            "listener.security.protocol.map": "Internal:plaintext,EXTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "internal",
            "control.plane.listener.name": "EXTERNAL",
        }
    )
    assert listener_endpoints(config) == (Endpoint("INTERNAL", "127.0.0.1", 1), Endpoint("EXTERNAL", "::1", 2))
    assert inter_broker_listener(config) == "INTERNAL"


def test_port_0_may_stand_twice() -> None:
    properties = {
        "listeners": "A://localhost:0,B://localhost:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    assert [endpoint.port for endpoint in listener_endpoints(load(properties))] == [0, 0]


@for_rows(
    "properties, reported",
    [
        ({"listeners": ""}, None),
        ({"listeners": " , "}, "names no listener"),
        ({"listeners": "localhost:9092"}, "'localhost:9092' is not an address"),
        ({"listeners": "PLAINTEXT://localhost"}, "is not an address"),
        ({"listeners": "PLAINTEXT://localhost:65536"}, "is not an address"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "is not an address"),
        ({"listeners": "X://localhost:1"}, "listener X has no security protocol"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "has the name PLAINTEXT twice"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to 0.0.0.0; set advertised.listeners"),
        ({"advertised.listeners": "SSL://a:1"}, "advertises SSL, which listeners does not have"),
        ({"listener.security.protocol.map": "A:B"}, "'A:B' is not a listener and one of PLAINTEXT"),
        ({"listener.security.protocol.map": "A:SSL,A:PLAINTEXT"}, "has A 2 times"),
        ({"inter.broker.listener.name": "NOPE"}, "listener.security.protocol.map does not have it"),
        ({"inter.broker.listener.name": "SSL"}, "it is not advertised; set inter.broker.listener.name to one of"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "it is not advertised"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "SSL"},
            "decides the protocol already",
        ),
        ({"control.plane.listener.name": "CONTROL"}, "listeners does not have it"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "is also the inter-broker listener"),
    ],
)
def test_invalid_listeners_are_refused(properties: dict[str, str], reported: str | None) -> None:
    if reported is None:
        load(properties)
    else:
        assert reported in problems(properties)[0]


def test_one_port_for_two_listeners_is_refused() -> None:
    reported = problems(
        {
            "listeners": "A://h:1,B://h:1",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name": "A",
        }
    )
    assert reported == ["listeners=A://h:1,B://h:1: has the port 1 twice; give each listener a port of its own"]
