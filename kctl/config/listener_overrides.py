"""Values that a listener, or a SASL mechanism of a listener, has for itself.  KIP-103, KIP-226.

    listener.name.internal.scram-sha-256.sasl.jaas.config    of a mechanism of the listener INTERNAL
    listener.name.internal.sasl.enabled.mechanisms           of the listener
    sasl.enabled.mechanisms                                  of all others

Kafka: AbstractConfig.valuesWithPrefixOverride, JaasContext.loadServerContext (2.8).

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.config.broker import BROKER_PROPERTIES
from kctl.errors import ConfigError


def listener_property(properties: Mapping[str, str], name: str, *, listener: str, mechanism: str = "") -> object:
    """The parsed value of a property for a listener, and for one of its mechanisms if it is named.

    Raises ConfigError, without the value if it is secret.
    """
    described = BROKER_PROPERTIES[name]
    for candidate in _candidates(name, listener, mechanism):
        text = properties.get(candidate)
        if text is not None and (text.strip() or described.default is not None):
            try:
                return described.parse(text)
            except ValueError as error:
                raise ConfigError(candidate, "[hidden]" if described.sensitive else text, str(error)) from None
    return described.default


def mechanism_property_name(name: str, *, listener: str, mechanism: str) -> str:
    """The name of a property of one mechanism of a listener."""
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"


def _candidates(name: str, listener: str, mechanism: str) -> list[str]:
    of_listener = f"listener.name.{listener.lower()}.{name}"
    of_mechanism = [mechanism_property_name(name, listener=listener, mechanism=mechanism)] if mechanism else []
    return [*of_mechanism, of_listener, name]
