"""Properties of SASL listeners that change while the broker runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kctl.config.dynamic import ConfigView
from kctl.server.requests.context import Peer
from kctl.server.sasl.channel import SaslChannel
from kctl.server.sasl.listeners import Channels, Secrets
from kctl.server.sasl.scram_credentials import ScramCredentials
from kctl.server.tokens.token_cache import TokenCache
from kctl.testing.sim_clock import SimClock
from tests.peers.json_web_tokens import Issuer

PEER = Peer("/10.0.0.1", "SASL")
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


async def changed(channels: Channels, view: ConfigView, overrides: dict[str, str]) -> None:
    view.set_dynamic_broker(overrides)
    if channels._changing is not None:
        await channels._changing


def mechanisms(channels: Channels) -> list[str]:
    channel = channels.open(PEER)
    assert isinstance(channel, SaslChannel)
    return list(channel._listener.mechanisms)


def knows(channels: Channels, user: str) -> bool:
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
        assert (knows(channels, "alice"), knows(channels, "bob")) == (True, False)
        await changed(channels, view, {USERS: jaas("bob"), MECHANISMS: "PLAIN,SCRAM-SHA-256"})
        assert (knows(channels, "alice"), knows(channels, "bob")) == (False, True)
        assert mechanisms(channels) == ["PLAIN", "SCRAM-SHA-256"]
        assert isinstance(old, SaslChannel)
        assert list(old._listener.mechanisms) == ["PLAIN"], "a connection keeps its listener"
        await changed(channels, view, {})
        assert (knows(channels, "alice"), mechanisms(channels)) == (True, ["PLAIN"])
        await channels.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "overrides", [{USERS: "nonsense sesame"}, {MECHANISMS: "TELEPATHY"}, {MECHANISMS: "OAUTHBEARER"}]
)
def test_a_change_that_cannot_be_used_keeps_the_old_properties(
    overrides: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = view_of()
        channels = await channels_of(view)
        await changed(channels, view, overrides)
        assert (knows(channels, "alice"), mechanisms(channels)) == (True, ["PLAIN"])
        await changed(channels, view, {USERS: jaas("carol")})
        assert knows(channels, "carol")
        await channels.close()

    asyncio.run(main())
    assert caplog.text.count("the old ones stay in use") == 1
    assert "sesame" not in caplog.text


def test_keys_are_read_from_the_new_place_and_not_read_again_for_other_changes(tmp_path: Path) -> None:
    async def main() -> None:
        places = [Issuer().write_key_set(tmp_path / f"{n}.json") for n in range(2)]
        view = view_of(**{"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", KEYS: places[0]})
        channels = await channels_of(view)
        (first,) = channels._keys.values()
        await changed(channels, view, {USERS: jaas("bob")})
        assert list(channels._keys.values()) == [first]
        await changed(channels, view, {KEYS: places[1]})
        ((source, second),) = channels._keys.items()
        assert source.url == places[1]
        assert second._keys.keys()
        assert first._task is not None
        assert first._task.done()
        await changed(channels, view, {KEYS: "file:///none/keys.json"})
        assert list(channels._keys.values()) == [second]
        await channels.close()

    asyncio.run(main())
