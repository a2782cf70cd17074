"""The supported APIs, by name and by key, from the definitions in `kctl/protocol/apis`.

The broker serves those of a Kafka 2.8 broker with ZooKeeper, and 65 and 66 from 3.0.  The client also supports some
newer ones, for the groups and the metadata log of Kafka 4.  Nothing is listed here: a definition is imported when its
API is looked up by name, and adds itself to `REQUESTS` when it is imported.  A lookup by key imports the other
definitions only if none of the imported ones has the key, so a process that only encodes some requests does not import
the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

from kctl.protocol import apis
from kctl.protocol.definition import definition_of
from kctl.protocol.message import REQUESTS

_API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API and its messages."""

    key: int
    name: str
    """As in file names: snake case."""
    request: type
    response: type
    versions: range
    flexible: range
    served: range
    """The versions that the broker serves; none for an API of the client only."""
    sent: range
    """The versions that the client sends."""
    flexible_responses: range
    """The versions whose response header is flexible; none of ApiVersions (KIP-511)."""

    @property
    def kafka_name(self) -> str:
        """The name in Kafka's documentation: camel case."""
        return _kafka_name(self.name)

    @property
    def version_max(self) -> int:
        """The newest version."""
        return self.versions[-1]

    def is_flexible(self, version: int) -> bool:
        """Return whether this version, known or newer, has compact lengths and tagged fields (KIP-482)."""
        return version in self.flexible


_apis: dict[int, Api] = {}
"""The APIs that were looked up, by key."""


def api(key: int) -> Api | None:
    """Return the API with this key, None when unknown."""
    known = _apis.get(key)
    if known is None:
        if key not in REQUESTS:
            _import_all()
        if key in REQUESTS:
            known = _apis[key] = _described(REQUESTS[key])
    return known


def api_named(name: str) -> Api:
    """Return the API with this name in snake case; KeyError when unknown."""
    if name not in _names():
        raise KeyError(name)
    module = import_module(f"{apis.__name__}.{name}")
    return api_of(getattr(module, f"{_kafka_name(name)}Request"))


def api_of(message_class: type) -> Api:
    """Return the API that a request or response class belongs to; KeyError for other classes."""
    key = definition_of(message_class).key
    known = api(key) if key is not None else None
    if known is None:
        raise KeyError(message_class.__name__)
    return known


def all_apis() -> dict[int, Api]:
    """Return all APIs by key, in its order.  Imports every definition."""
    _import_all()
    return {key: _described(REQUESTS[key]) for key in sorted(REQUESTS)}


def _described(request: type) -> Api:
    definition = definition_of(request)
    assert definition.key is not None
    # Another thread may be importing the module: this waits until its response is defined too.
    module = import_module(request.__module__)
    name = module.__name__.rpartition(".")[2]
    return Api(
        key=definition.key,
        name=name,
        request=request,
        response=getattr(module, f"{_kafka_name(name)}Response"),
        versions=definition.versions,
        flexible=definition.flexible,
        served=definition.served,
        sent=definition.sent,
        flexible_responses=range(0) if definition.key == _API_VERSIONS else definition.flexible,
    )


def _kafka_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


@cache
def _names() -> frozenset[str]:
    from pkgutil import iter_modules  # noqa: PLC0415 - for the broker and tests; it slows the start of commands

    return frozenset(module.name for module in iter_modules(apis.__path__))


@cache
def _import_all() -> None:
    for name in _names():
        import_module(f"{apis.__name__}.{name}")
