"""Settings come from options, then from properties, then from defaults."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kctl.client import ConsumerConfig, ProducerConfig
from kctl.client.settings import ClientSettings, client_settings, parse_servers
from kctl.errors import ConfigError, UsageError
from tests.rows import for_rows


def settings(**given: Any) -> ClientSettings:
    defaults: dict[str, Any] = {
        "bootstrap_servers": None,
        "properties": {},
        "timeout_ms": None,
        "default_servers": "127.0.0.1:9092",
        "default_timeout_ms": 30_000,
    }
    return client_settings(**(defaults | given))


def test_defaults_are_loopback_and_a_bounded_wait() -> None:
    assert settings() == ClientSettings((("127.0.0.1", 9092),), "kctl", 30_000, 5_000)


def test_options_override_properties() -> None:
    properties = {"bootstrap.servers": "a:1", "default.api.timeout.ms": "9000", "client.id": "me"}
    assert settings(properties=properties).bootstrap == (("a", 1),)
    chosen = settings(properties=properties, bootstrap_servers="b:2", timeout_ms=1_000)
    assert chosen == ClientSettings((("b", 2),), "me", 1_000, 1_000)


def test_rack_comes_from_properties() -> None:
    assert settings(properties={"client.rack": "a"}).rack == "a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        ("a", (("a", 9092),)),
        ("[::1]:9093, [::1]", (("::1", 9093), ("::1", 9092))),
    ],
)
def test_servers_are_read(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_servers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://a:1", (("a", 1),)),
        ("plaintext://a:1/, b:2 ,PLAINTEXT://[::1]:9093,PLAINTEXT://[fe80::1%eth0]", None),
        ("EXTERNAL://a:1", (("a", 1),)),
        ("PLAINTEXT://a", (("a", 9092),)),
        ("PLAINTEXT://::1:9093", (("::1", 9093),)),
    ],
)
def test_addresses_may_begin_with_a_protocol(text: str, expected: tuple[tuple[str, int], ...] | None) -> None:
    several = (("a", 1), ("b", 2), ("::1", 9093), ("fe80::1%eth0", 9092))
    assert parse_servers(text, "PLAINTEXT") == (expected or several)


def test_protocol_of_an_address_must_be_that_of_the_connection() -> None:
    for text, protocol in (("SASL_SSL://a:1", "PLAINTEXT"), ("b:2,plaintext://a:1", "SSL"), ("SSL://a:1", "SASL_SSL")):
        with pytest.raises(UsageError, match=rf"but security.protocol is {protocol}: set security.protocol="):
            parse_servers(text, protocol)
    assert parse_servers("ssl://a:1", "SSL") == parse_servers("SASL_SSL://a:1") == (("a", 1),)
    with pytest.raises(UsageError, match="names SASL_SSL"):
        settings(properties={"bootstrap.servers": "SASL_SSL://a:1"})


@pytest.mark.parametrize(
    "text", ["PLAINTEXT://", "PLAINTEXT:/a:1", "PLAINTEXT://a:1/x", "http://a:1", "PLAINTEXT://u:p@a:1"]
)
def test_other_urls_are_refused_without_their_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_servers(text)
    assert "u:p" not in str(caught.value)


@for_rows("text", ["", ",", "a:b", "a:0", "a:65536", ":9092"])
def test_invalid_bootstrap_servers_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_servers(text)


def test_security_protocol_without_the_security_made_of_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol=SASL_SSL"):
        settings(properties={"security.protocol": "SASL_SSL"})


def test_property_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match=r"default\.api\.timeout\.ms=soon"):
        settings(properties={"default.api.timeout.ms": "soon"})


def test_settings_of_a_wrong_type_or_value_are_refused_by_name() -> None:
    producer: type[Any] = ProducerConfig
    consumer: type[Any] = ConsumerConfig
    for config, given, problem in (
        (producer, {"linger_ms": "5"}, "linger_ms must be an int, not '5'"),
        (producer, {"linger_ms": True}, "linger_ms must be an int, not True"),
        (producer, {"linger_ms": -1}, "linger_ms must be from 0 to 2147483647, not -1"),
        (producer, {"request_timeout_ms": 1 << 31}, "request_timeout_ms must be from 0 to 2147483647"),
        (producer, {"retries": 1.5}, "retries must be an int or None, not 1.5"),
        (producer, {"acks": 1}, "acks must be 'all', '1' or '0', not 1"),
        (producer, {"acks": "2"}, "acks is '2'"),
        (producer, {"compression_type": None}, "compression_type must be a str, not None"),
        (producer, {"enable_idempotence": "yes"}, "enable_idempotence must be True or False, not 'yes'"),
        (producer, {"value_serializer": "json"}, "value_serializer must be callable, not 'json'"),
        (producer, {"partitioner": 5}, "partitioner must be callable, not 5"),
        (producer, {"interceptors": 5}, "interceptors must be a list, not 5"),
        (producer, {"security": "SSL"}, "security must be None"),
        (producer, {"bootstrap_servers": 9092}, "bootstrap_servers: must be host:port, or several in a list, not 9092"),
        (producer, {"bootstrap_servers": "a:x"}, "bootstrap_servers: 'a:x' is not an address"),
        (producer, {"bootstrap_servers": []}, "bootstrap_servers: '' names no host"),
        (consumer, {"group_id": 7}, "group_id must be a str or None, not 7"),
        (consumer, {"assignors": "range"}, "assignors must be a tuple of names, or None, not 'range'"),
        (consumer, {"isolation_level": 3}, "isolation_level must be a str, not 3"),
        (consumer, {"auto_offset_reset": None}, "auto_offset_reset must be a str, not None"),
        (consumer, {"auto_offset_reset": "erliest"}, "auto_offset_reset is 'erliest'; use latest"),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(problem)}"):
            config(**{"bootstrap_servers": "a:1"} | given)
    assert producer(bootstrap_servers=["a:1", "b:2"], buffer_memory=1 << 40).client_settings().bootstrap[1] == ("b", 2)
