"""Port for decoding a column of keys or values, and its implementation for texts.

Each value is decoded, or there is a reason why it does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa


class DecodedColumn(NamedTuple):
    """The columns of all values, null where a value does not fit, and the reasons by index."""

    arrays: Sequence[pa.Array]
    """As many as `fields_of` names."""
    misfits: Mapping[int, str]


class ColumnDecoder(Protocol):
    """Decodes the binary column of keys or values."""

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """All values.  Raises nothing because of their bytes."""
        ...


class TextDecoder:
    """Keys or values that are UTF-8."""

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        texts, misfits = decoded_texts(raw)
        return DecodedColumn([texts], misfits)


def decoded_texts(raw: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The values as strings; invalid ones are null and have a reason."""
    try:
        return raw.cast(pa.string()), {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    misfits = {}
    for index, value in enumerate(raw.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            misfits[index] = "it is not UTF-8"
    return pa.array(texts, pa.string()), misfits
