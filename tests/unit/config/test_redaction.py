"""Properties as they may be shown."""

from __future__ import annotations

import re

import pytest

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.redaction import HIDDEN, collect_secrets, general_property, redacted

JAAS = 'PlainLoginModule required username="admin" password="in-the-jaas" user_bob=bobs-password;'


def test_every_property_named_as_a_secret_is_hidden_with_and_without_prefixes() -> None:
    secret = [name for name in BROKER_PROPERTIES if re.search(r"password$|secret$|jaas\.config$|master\.key$", name)]
    assert len(secret) >= 8
    for name in secret:
        for prefix in ("", "listener.name.internal.", "listener.name.internal.scram-sha-256."):
            assert redacted({prefix + name: "planted"}) == {prefix + name: HIDDEN}


def test_unknown_properties_are_hidden() -> None:
    assert redacted({"plugin.api": "planted", "listener.name.x.plugin": "planted"}) == {
        "listener.name.x.plugin": HIDDEN,
        "plugin.api": HIDDEN,
    }


def test_other_values_are_shown_without_users_of_urls() -> None:
    given = {"num.partitions": "3", "sasl.oauthbearer.jwks.endpoint.url": "https://user:planted@host/keys"}
    assert redacted(given) == {
        "num.partitions": "3",
        "sasl.oauthbearer.jwks.endpoint.url": f"https://{HIDDEN}@host/keys",
    }


def test_secrets_are_the_hidden_values_and_the_passwords_inside_of_them() -> None:
    given = {
        "listener.name.x.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.password": "of-the-store",
        "num.partitions": "3",
        "custom.metrics.folder": "/srv/metrics",
        "custom.api.token": "of-the-plug-in",
    }
    assert collect_secrets(given) == [JAAS, "in-the-jaas", "bobs-password", "of-the-store", "of-the-plug-in"]


@pytest.mark.parametrize("name", ["listener.name.x", "listener.name..y", "x.listener.name.y.num.partitions"])
def test_names_that_only_look_like_those_of_listeners_are_unknown(name: str) -> None:
    assert general_property(name) is None
