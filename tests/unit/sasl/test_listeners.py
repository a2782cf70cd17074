"""Properties of SASL listeners that change while the broker runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ConfigError, ErrorCode
from kctl.server.requests.context import Peer
from kctl.server.security.sasl.channel import SaslChannel
from kctl.server.security.sasl.listeners import Channels
from kctl.server.security.sasl.mechanisms import Secrets
from kctl.server.security.sasl.scram_credentials import ScramCredentials
from kctl.server.security.tokens.token_cache import TokenCache
from kctl.testing.sim_clock import SimClock
from tests.peers.json_web_tokens import Issuer
from tests.rows import for_rows

PEER = Peer("/10.0.0.1", "SASL", security_protocol="SASL_PLAINTEXT")
USERS = "listener.name.sasl.plain.sasl.jaas.config"
MECHANISMS = "listener.name.sasl.sasl.enabled.mechanisms"
KEYS = "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"


def jaas(*users: str) -> str:
    options = " ".join(f'user_{user}="sesame"' for user in users)
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


async def channels_of(view: ConfigView) -> Channels:
    loop = asyncio.get_running_loop()
    made = Channels(
        view,
        handle=lambda _frame, _peer: None,
        clock=SimClock(loop.time),
        secrets=Secrets(ScramCredentials(), TokenCache("key")),
    )
    await made.start()
    return made


def view_of(**more: str) -> ConfigView:
    return ConfigView(
        {
            "listeners": "SASL://127.0.0.1:9092",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            USERS: jaas("alice"),
            **more,
        }
    )


def mechanisms(channels: Channels) -> list[str]:
    channel = channels.open(PEER)
    assert isinstance(channel, SaslChannel)
    return list(channel._listener.mechanisms)


def has_user(channels: Channels, user: str) -> bool:
    channel = channels.open(PEER)
    assert isinstance(channel, SaslChannel)
    try:
        channel._listener.mechanisms["PLAIN"]().respond(f"\0{user}\0sesame".encode())
    except Exception:
        return False
    return True


def test_users_and_mechanisms_change_for_new_connections() -> None:
    async def main() -> None:
        view = view_of()
        channels = await channels_of(view)
        old = channels.open(PEER)
        assert (has_user(channels, "alice"), has_user(channels, "bob")) == (True, False)
        view.set_dynamic_broker({USERS: jaas("bob"), MECHANISMS: "PLAIN,SCRAM-SHA-256"})
        assert (has_user(channels, "alice"), has_user(channels, "bob")) == (False, True)
        assert mechanisms(channels) == ["PLAIN", "SCRAM-SHA-256"]
        assert isinstance(old, SaslChannel)
        assert list(old._listener.mechanisms) == ["PLAIN"], (
            "a connection keeps its settings until its client authenticates again"
        )
        view.set_dynamic_broker({})
        assert (has_user(channels, "alice"), mechanisms(channels)) == (True, ["PLAIN"])
        await channels.close()

    asyncio.run(main())


UNUSABLE = [
    {USERS: "nonsense sesame"},
    {USERS: jaas()},
    {USERS: jaas("bob").replace("plain.PlainLoginModule", "scram.ScramLoginModule")},
    {MECHANISMS: "TELEPATHY,PLAIN"},
    {MECHANISMS: ""},
    {MECHANISMS: "PLAIN,OAUTHBEARER"},
    {"listener.name.sasl.plain.connections.max.reauth.ms": "soon"},
]


@pytest.mark.parametrize("overrides", UNUSABLE)
def test_a_stored_change_that_cannot_be_used_keeps_the_old_properties_and_is_logged_once(
    overrides: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = view_of()
        channels = await channels_of(view)
        for number in range(3):
            view.set_dynamic_broker(
                {**overrides, "listener.name.sasl.sasl.server.max.receive.size": f"{1000 + number}"}
            )
            assert (has_user(channels, "alice"), mechanisms(channels)) == (True, ["PLAIN"])
        view.set_dynamic_broker({USERS: jaas("carol")})
        assert has_user(channels, "carol")
        await channels.close()

    asyncio.run(main())
    assert caplog.text.count("the old ones stay in use") == 1
    assert "sesame" not in caplog.text


@pytest.mark.parametrize("overrides", UNUSABLE)
def test_a_broker_starts_with_its_static_properties_when_stored_ones_cannot_be_used(
    overrides: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = view_of()
        loop = asyncio.get_running_loop()
        secrets = Secrets(ScramCredentials(), TokenCache("key"))
        channels = Channels(view, handle=lambda _frame, _peer: None, clock=SimClock(loop.time), secrets=secrets)
        view.set_dynamic_broker(overrides)
        await channels.start()
        assert (has_user(channels, "alice"), mechanisms(channels)) == (True, ["PLAIN"])
        await channels.close()

    asyncio.run(main())
    assert caplog.text.count("the old ones stay in use") == 1


def test_a_listener_that_cannot_verify_tokens_does_not_start() -> None:
    """CVE-2026-110985: without an address of keys, signatures were not verified."""
    with pytest.raises(ConfigError, match="cannot verify the signatures of OAUTHBEARER tokens"):
        asyncio.run(channels_of(view_of(**{"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"})))


def test_a_mechanism_without_usable_properties_is_not_offered_and_the_others_are() -> None:
    async def main() -> None:
        view = view_of(**{"sasl.enabled.mechanisms": "SCRAM-SHA-256", USERS: ""})
        channels = await channels_of(view)
        view.set_dynamic_broker({MECHANISMS: "PLAIN,SCRAM-SHA-512", USERS: jaas()})
        assert mechanisms(channels) == ["SCRAM-SHA-512"]
        view.set_dynamic_broker({MECHANISMS: "PLAIN", USERS: jaas()})
        assert mechanisms(channels) == []
        await channels.close()

    asyncio.run(main())


@for_rows("overrides", UNUSABLE)
def test_a_change_of_a_client_that_cannot_be_used_is_refused_with_the_name_of_the_property(
    overrides: dict[str, str],
) -> None:
    async def main() -> None:
        view = view_of()
        channels = await channels_of(view)
        with pytest.raises(ApiError) as caught:
            await view.validate(overrides, per_broker=True)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert any(
            name.removeprefix("listener.name.sasl.") in str(caught.value)
            for name in (*overrides, "sasl.oauthbearer.jwks.endpoint.url")
        )
        assert "sesame" not in str(caught.value)
        view.set_dynamic_broker(overrides)
        await view.validate({**overrides, "log.cleaner.threads": "2"}, per_broker=True)
        await channels.close()

    asyncio.run(main())


def test_keys_are_read_when_oauthbearer_is_enabled_and_not_read_again_for_other_changes(tmp_path: Path) -> None:
    async def main() -> None:
        view = view_of(**{KEYS: Issuer().write_key_set(tmp_path / "keys.json")})
        channels = await channels_of(view)
        assert channels._mechanisms.keys == {}
        view.set_dynamic_broker({MECHANISMS: "PLAIN,OAUTHBEARER"})
        (first,) = channels._mechanisms.keys.values()
        async with asyncio.timeout(60):
            while not first._keys:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        view.set_dynamic_broker({MECHANISMS: "PLAIN,OAUTHBEARER", USERS: jaas("bob")})
        assert list(channels._mechanisms.keys.values()) == [first]
        view.set_dynamic_broker({})
        assert channels._mechanisms.keys == {}
        assert first._task is not None
        await asyncio.wait([first._task])
        await channels.close()

    asyncio.run(main())
