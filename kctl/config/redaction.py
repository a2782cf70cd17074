"""Properties as they may be shown to people who may not know the secrets of a broker.

The rules are those of DescribeConfigs: the values of passwords are hidden, and so are those of unknown properties,
which may be passwords of a plug-in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.definition import Property

HIDDEN = "[hidden]"
_LISTENER = re.compile(r"listener\.name\.[^.]+\.")
_SECRET_NAME = re.compile(r"password|secret|token|credential|jaas|private|key$", re.IGNORECASE)
_INNER_SECRET = re.compile(r"""(?:password|secret|user_[^=\s]{1,256})\s{0,8}=\s{0,8}["']?([^"';\s]+)""", re.IGNORECASE)
"""In the options of a sasl.jaas.config."""
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s,]*@")


def general_property(name: str) -> Property | None:
    """Return the declaration of a property, also with the prefix of a listener, and of a SASL mechanism; None if
    unknown.

    Such as sasl.jaas.config for listener.name.internal.scram-sha-256.sasl.jaas.config.
    """
    known = BROKER_PROPERTIES.get(name)
    of_listener = _LISTENER.match(name)
    if known is not None or of_listener is None:
        return known
    rest = name[of_listener.end() :]
    return BROKER_PROPERTIES.get(rest) or BROKER_PROPERTIES.get(rest.partition(".")[2])


def is_secret(name: str) -> bool:
    """Return whether the value of a property is a secret; the name decides for a property that is not known."""
    described = general_property(name)
    return _SECRET_NAME.search(name) is not None if described is None else described.sensitive


def redacted(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties in the order of their names, without secrets."""
    return {name: _shown(name, text) for name, text in sorted(properties.items())}


def collect_secrets(properties: Mapping[str, str]) -> list[str]:
    """Return the texts that must not appear elsewhere: the values of passwords, and the passwords inside of them."""
    secrets: dict[str, None] = {}
    for name, text in properties.items():
        if text.strip() and is_secret(name):
            secrets[text.strip()] = None
            secrets.update(dict.fromkeys(_INNER_SECRET.findall(text)))
    return list(secrets)


def _shown(name: str, text: str) -> str:
    described = general_property(name)
    if described is None or described.sensitive:
        return HIDDEN
    return _USER_OF_URL.sub(f"{HIDDEN}@", text)
