"""/brokers/ids/N, the registration of a broker with its endpoints: JSON as Kafka's brokers write it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kctl.model import Endpoint
from kctl.output.documents import parse_json
from kctl.output.quantities import INT16_MAX, PORT_MAX

# JSON in Kafka's znodes: encoding, and decoding with errors that name the path and the problem.


T = TypeVar("T")


def encode_json(znode: Mapping[str, object]) -> bytes:
    """Return the object as compact JSON in UTF-8."""
    return json.dumps(znode, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(path: str, data: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    """Return what `build` makes of the object in the znode at `path`.

    `build` may raise KeyError, ValueError and TypeError.  Raises ValueError with the path and the start of the data.
    """
    try:
        znode = parse_json(data)
        if not isinstance(znode, dict):
            raise TypeError("not a JSON object")
        return build(znode)
    except KeyError as missing:
        raise ValueError(f"znode {path} has no {missing}: {data[:200]!r}") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as wrong:
        raise ValueError(f"znode {path} has invalid data ({wrong}): {data[:200]!r}") from None


def check_version(znode: dict[str, Any], newest: int) -> int:
    """Return the version, 1 if there is none.  Raises ValueError for unknown versions."""
    version = int(znode.get("version", 1))
    if not 1 <= version <= newest:
        raise ValueError(f"unknown version {version}, expected 1 to {newest}")
    return version


_VERSION = 5


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """/brokers/ids/N: the endpoints of a broker.  Version 5, with features, is written from IBP 2.7 on, else version
    4.
    """

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Supported features with (min, max) version; brokers in ZooKeeper mode have none."""
    version: int = _VERSION


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Return the content of /brokers/ids/N.

    host and port are those of the first PLAINTEXT endpoint for readers older than 0.9, or null and -1.
    """
    plain = next((endpoint for endpoint in broker.endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
    znode: dict[str, object] = {
        "version": broker.version,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": broker.jmx_port,
        "timestamp": str(broker.timestamp_ms),
        "endpoints": [_endpoint_text(endpoint) for endpoint in broker.endpoints],
        "listener_security_protocol_map": {
            endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints
        },
    }
    if broker.rack is not None:
        znode["rack"] = broker.rack
    if broker.version >= 5:
        znode["features"] = {
            name: {"min_version": low, "max_version": high} for name, (low, high) in broker.features.items()
        }
    return encode_json(znode)


def decode_broker(path: str, data: bytes) -> BrokerRegistration:
    """Return the registration of the broker with the id in the path."""
    return decode_json(path, data, _parse_broker)


def _parse_broker(znode: dict[str, Any]) -> BrokerRegistration:
    version = int(znode["version"])
    if version < 1:
        raise ValueError(f"unknown version {version} of a broker registration")
    if version == 1:
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", str(znode["host"]), int(znode["port"])),)
    else:
        protocols = znode.get("listener_security_protocol_map") or {}
        endpoints = tuple(_parse_endpoint(text, protocols) for text in znode["endpoints"])
    features = znode.get("features") or {}
    for endpoint in endpoints:
        _check_text("listener", endpoint.listener)
        _check_text("host", endpoint.host)
        _check_text("security protocol", endpoint.security_protocol)
        _check_number("port", endpoint.port, -1, PORT_MAX)
    rack = znode.get("rack")
    if rack is not None:
        _check_text("rack", rack)
    return BrokerRegistration(
        endpoints=endpoints,
        timestamp_ms=int(znode.get("timestamp", -1)),
        rack=rack,
        jmx_port=int(znode.get("jmx_port", -1)),
        features={name: (int(levels["min_version"]), int(levels["max_version"])) for name, levels in features.items()},
        version=version,
    )


def _check_text(what: str, text: object) -> None:
    """Raise ValueError for what a response cannot contain: one such broker would break Metadata for all clients."""
    if not isinstance(text, str) or len(text.encode()) > INT16_MAX:
        raise ValueError(f"the {what} is not a text of at most {INT16_MAX} bytes")


def _check_number(what: str, number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise ValueError(f"the {what} {number} is not between {low} and {high}")


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Parse an endpoint; without a protocol map the listener's name is its protocol, as before KIP-103."""
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host.removeprefix("[").removesuffix("]"), int(port), protocols.get(listener, listener))
