"""Selects the client quota that applies to a user and a client id, for brokers and commands.  KIP-55.

Quotas are set for a user, a client id, or a pair of both; each may be the default instead of a name.  One quota applies
to a request: that of the most specific entity that has a value for the key:

  1. user U, client id C      2. user U, default client id      3. user U
  4. default user, client C   5. default user and client id     6. default user
  7. client id C              8. default client id

Clients to which the same entity applies by user alone, or by client id alone, share one rate; see `QuotaEntity.group`.
An empty client id counts as none, so that only users' quotas apply to it.

Kafka: ClientQuotaManager.DefaultQuotaCallback (2.8).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import NamedTuple


class EntityType(StrEnum):
    """The parts of an entity, by their names in the protocol."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class Default(Enum):
    """The default user or the default client id; other names are strings."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT
DEFAULT_NAME = "<default>"
"""The default user, client id or address in texts, as in Kafka's znodes."""
Name = str | Default
"""The name of a user or client id, or the default."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The quotas of users and client ids."""
IP_KEYS = (CONNECTION_CREATION_RATE,)
"""The quotas of IP addresses (KIP-612)."""


class QuotaGroup(NamedTuple):
    """The clients that share one rate; an empty user or client id means all of them."""

    user: str
    client_id: str


class QuotaEntity(NamedTuple):
    """The user and client id for which a quota is set; None for a part that the entity does not have."""

    user: Name | None
    client_id: Name | None

    def group(self, user: str, client_id: str) -> QuotaGroup:
        """Return the clients with which a client shares its rate when the quota of this entity applies to it."""
        return QuotaGroup("" if self.user is None else user, "" if self.client_id is None else client_id)

    def __str__(self) -> str:
        parts = [
            f"{kind} {name_text(None if name is DEFAULT else name, '(default)')}"
            for kind, name in ((EntityType.USER, self.user), (EntityType.CLIENT_ID, self.client_id))
            if name is not None
        ]
        return ", ".join(parts)


def name_text(name: str | None, default: str = DEFAULT_NAME) -> str:
    """Return the text for a name, and for None, the default; `parse_name` is the inverse.

    A user can have the name `<default>`: its text is `+<default>`, and that of the user `+<default>` has two of `+`.
    """
    if name is None:
        return default
    return f"+{name}" if name.lstrip("+") == default else name


def parse_name(text: str, reserved: str = DEFAULT_NAME) -> str | None:
    """Return the name in a text of `name_text`; None for the reserved text itself."""
    if text == reserved:
        return None
    return text[1:] if text.lstrip("+") == reserved else text


def joined_names(entity: Sequence[tuple[str, str | None]], separator: str) -> str:
    """Return the texts of the names of an entity, joined so that no other entity has the same text.

    In a name, `+` is put before each separator, and `+` before a separator is doubled.
    """
    last = len(entity) - 1
    texts = []
    for index, (_, name) in enumerate(entity):
        before = re.escape(separator) + ("" if index == last else r"|\Z")
        doubled = re.sub(rf"(\++)(?={before})", r"\1\1", name_text(name))
        texts.append(doubled.replace(separator, f"+{separator}"))
    return separator.join(texts)


def candidates(user: str, client_id: str) -> tuple[QuotaEntity, ...]:
    """Return the entities whose quota can apply to the client, the most specific first."""
    if not client_id:
        return (QuotaEntity(user, None), QuotaEntity(DEFAULT, None))
    return (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(user, None),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, None),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT),
    )
