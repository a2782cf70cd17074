"""The options of `format("kctl")`, which readers and writers share."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kctl.client.connections.security import client_security
from kctl.client.properties.table import Client, check_properties, unknown_names
from kctl.client.settings import ClientSettings, client_settings
from kctl.config.properties import decode_properties, parse_properties
from kctl.errors import UsageError
from kctl.output.quantities import INT64_MAX, parse_integer
from kctl.system.user_files import read_regular
from kctl.tables.engines.job import portable

logger = logging.getLogger(__name__)

DEFAULT_SERVERS = "127.0.0.1:9092"
TIMEOUT_MS = 30_000
KAFKA = "kafka."
"""Prefix of the properties of clients, as in Spark's Kafka source and sink."""
_NAMES_OF_SPARK = {"subscribe": "topic", "kafka.bootstrap.servers": "bootstrap.servers"}
"""Options of Spark's Kafka source that have another name here."""
REFUSED: Mapping[Client, Mapping[str, str]] = {
    Client.CONSUMER: {
        "auto.offset.reset": "use startingOffsets",
        "enable.auto.commit": "Spark keeps the offsets",
        "key.deserializer": "use key",
        "value.deserializer": "use value",
        "interceptor.classes": "no Java classes are loaded",
    },
    Client.PRODUCER: {
        "transactional.id": "tasks have ids of their own",
        "key.serializer": "keys are bytes or text",
        "value.serializer": "values are bytes or text",
        "interceptor.classes": "no Java classes are loaded",
    },
}
"""Properties that Spark refuses too, and why."""


class ClientProperties(NamedTuple):
    """The properties of a query's clients, and what follows from them."""

    properties: dict[str, str]
    values: dict[str, Any]
    """Those that the client has, parsed."""
    settings: ClientSettings
    """With the contents of key stores, for executors."""


class QueryOptions:
    """The options of a query, whose names are compared without case.  Raises UsageError for one that is not known."""

    def __init__(self, options: Mapping[str, str], names: Collection[str], ignored: Collection[str] = ()) -> None:
        self._given = {_NAMES_OF_SPARK.get(name.lower(), name.lower()): text for name, text in options.items()}
        known = {name.lower() for name in (*names, *ignored)}
        unknown = {name for name in self._given if name not in known and not name.startswith(KAFKA)}
        if unknown:
            raise UsageError(
                f"format kctl has no option {', '.join(sorted(unknown))}; it has {', '.join(names)}, and properties of "
                "Kafka's clients as kafka.NAME"
            )

    def text(self, name: str, default: str = "") -> str:
        """Return the text of an option."""
        return self._given.get(name.lower(), default)

    def one_of(self, name: str, words: tuple[str, ...], default: str = "") -> str:
        """Return the word of an option, by default the first one."""
        text = self.text(name, default or words[0]).lower()
        if text not in words:
            raise UsageError(f"{name} takes {', '.join(words)}, not '{text}'")
        return text

    def count(self, name: str, low: int = 1) -> int | None:
        """Return the number of an option; None if it is not given."""
        return parse_integer(self.text(name), name, low=low, high=INT64_MAX) if self.text(name) else None

    def client_properties(self, client: Client) -> ClientProperties:
        """Return the properties of command.config and, over these, of kafka.NAME.  Raises ConfigError too."""
        of_options = {name.removeprefix(KAFKA): text for name, text in self._given.items() if name.startswith(KAFKA)}
        for name, reason in REFUSED[client].items():
            if name in of_options:
                raise UsageError(f"format kctl has no option {KAFKA}{name}: {reason}")
        properties = _read_properties(self.text("command.config")) | of_options
        values = check_properties(properties, client)
        if not_known := unknown_names(properties):
            logger.warning("not a property of Kafka's clients, and ignored: %s", ", ".join(not_known))
        settings = client_settings(
            bootstrap_servers=self.text("bootstrap.servers") or None,
            properties=properties,
            timeout_ms=None,
            default_servers=DEFAULT_SERVERS,
            default_timeout_ms=TIMEOUT_MS,
            security=client_security(properties),
        )
        return ClientProperties(properties, values, portable(settings))


def _read_properties(path: str) -> dict[str, str]:
    if not path:
        return {}
    try:
        return parse_properties(decode_properties(read_regular(path)))
    except (OSError, ValueError) as error:
        raise UsageError(f"command.config {path}: {getattr(error, 'strerror', None) or error}") from None
