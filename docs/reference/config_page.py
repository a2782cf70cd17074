"""The page docs/reference/config.md, from the tables of properties; `generate.py` writes it."""

from __future__ import annotations

from collections.abc import Iterable

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.definition import Dynamic, Property
from kctl.config.dynamic import DYNAMIC_ONLY_PROPERTIES
from kctl.config.topic import TOPIC_PROPERTIES

_HEAD = """\
# Configuration

The names are Apache Kafka's (2.8, coordinated by ZooKeeper). This page is generated from `kctl/config` by
`./dev docs`; do not edit it by hand.

A broker's properties are set in `server.properties` and by `-o name=value` on the command line, which takes precedence.
Properties with an entry in the column *Dynamic* can also be changed while the broker runs, with `kctl configs alter` or
any admin client. Unknown names are reported and ignored. A property marked *No effect* is accepted and described, since
existing configurations contain it; the reason follows.
"""

_BROKER_HEAD = """
## Broker

| Property | Type | Default | Valid values | Dynamic | Meaning |
|---|---|---|---|---|---|
"""

_DYNAMIC_ONLY_HEAD = """
### Dynamic only

| Property | Type | Default | Valid values | Dynamic | Meaning |
|---|---|---|---|---|---|
"""

_TOPIC_HEAD = """
## Topic

These can be set when a topic is created or altered; the default is the value of the broker's property.

| Property | Type | Default | Valid values | The broker's property | Meaning |
|---|---|---|---|---|---|
"""


def config_reference() -> str:
    """Return the text of the page."""
    broker = "".join(_row(entry, _dynamic(entry)) for entry in _sorted(BROKER_PROPERTIES.values()))
    dynamic_only = "".join(_row(entry, _dynamic(entry)) for entry in _sorted(DYNAMIC_ONLY_PROPERTIES.values()))
    topic = "".join(_row(entry, f"`{entry.server}`" if entry.server else "") for entry in TOPIC_PROPERTIES.values())
    return _HEAD + _BROKER_HEAD + broker + _DYNAMIC_ONLY_HEAD + dynamic_only + _TOPIC_HEAD + topic


def _sorted(entries: Iterable[Property]) -> list[Property]:
    return sorted(entries, key=lambda entry: entry.name)


def _row(entry: Property, fifth: str) -> str:
    rules = "; ".join(rule.text for rule in entry.rules)
    cells = (f"`{entry.name}`", entry.kind.type.name.lower(), _default(entry), rules, fifth, _meaning(entry))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(entry: Property) -> str:
    if entry.default is None:
        return "none" if not entry.falls_back_to else f"`{entry.falls_back_to[0]}`"
    return f"`{entry.format(entry.default)}`" if entry.format(entry.default) else "empty"


def _dynamic(entry: Property) -> str:
    return "no" if entry.dynamic is Dynamic.READ_ONLY else entry.dynamic.value


def _meaning(entry: Property) -> str:
    return f"{entry.doc} *No effect:* {entry.unused}." if entry.unused else entry.doc
