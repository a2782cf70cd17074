"""JSON in Kafka's znodes: encoding, and decoding with errors that name the path and the problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def encode_json(znode: Mapping[str, object]) -> bytes:
    """Return the object as compact JSON in UTF-8."""
    return json.dumps(znode, separators=(",", ":"), ensure_ascii=False).encode()


def load_json(data: bytes) -> Any:
    """Return the value.

    Raises ValueError also for text with half of a surrogate pair: it has no encoding, so it can be neither in the path
    of a request to ZooKeeper nor in a response to a client.  RecursionError for deeply nested values.
    """
    text = data.decode(json.detect_encoding(data))
    value = json.loads(text)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def decode_json(path: str, data: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    """Return what `build` makes of the object in the znode at `path`.

    `build` may raise KeyError, ValueError and TypeError.  Raises ValueError with the path and the start of the data.
    """
    try:
        znode = load_json(data)
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
