"""Security of connections to other brokers, with dynamic properties that cannot be used."""

from __future__ import annotations

import asyncio

import pytest

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ConfigError, ErrorCode
from kctl.server.peers.connections import PeerSecurity

CREDENTIALS = "listener.name.sasl.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USABLE = f'{MODULE} required username="broker" password="sesame";'
UNUSABLE = f'{MODULE} required user_alice="sesame";'


def view_of(**more: str) -> ConfigView:
    return ConfigView(
        {
            "listeners": "SASL://127.0.0.1:9092",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            **more,
        }
    )


def test_a_broker_connects_with_its_static_credentials_when_the_stored_ones_cannot_be_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        view = view_of(**{CREDENTIALS: USABLE})
        view.set_dynamic_broker({CREDENTIALS: UNUSABLE})
        peers = PeerSecurity(view)
        await peers.load(["SASL"])
        first = await peers.of("SASL")
        assert first is not None
        for _ in range(3):
            assert await peers.of("SASL") is first
        with pytest.raises(ApiError, match=r"sasl\.jaas\.config") as caught:
            await view.validate({CREDENTIALS: UNUSABLE.replace("alice", "bob")}, per_broker=True)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert "sesame" not in str(caught.value)
        await view.validate({CREDENTIALS: UNUSABLE, "log.cleaner.threads": "2"}, per_broker=True)
        view.set_dynamic_broker({CREDENTIALS: USABLE.replace("broker", "other")})
        assert await peers.of("SASL") is not first

    asyncio.run(main())
    assert caplog.text.count("cannot load TLS or SASL for other brokers") == 1
    assert "sesame" not in caplog.text


def test_a_broker_without_usable_credentials_does_not_connect() -> None:
    async def main() -> None:
        view = view_of()
        view.set_dynamic_broker({CREDENTIALS: UNUSABLE})
        peers = PeerSecurity(view)
        await peers.load(["SASL"])
        with pytest.raises(ConfigError):
            await peers.of("SASL")

    asyncio.run(main())


def test_unusable_static_credentials_stop_the_start() -> None:
    with pytest.raises(ConfigError):
        asyncio.run(PeerSecurity(view_of(**{CREDENTIALS: UNUSABLE})).load(["SASL"]))
