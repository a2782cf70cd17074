"""Decodes JSON of any kind into variants, and variants into JSON."""

from __future__ import annotations

import pyarrow as pa

from kctl.tables.exec.decoding.batch_decoder import DecodedColumn, decoded_texts
from kctl.tables.exec.decoding.variant_encoding import NotVariant, VariantEncoder, json_text
from kctl.tables.exec.schema.arrow_types import VARIANT_TYPE
from kctl.tables.exec.targets.target import require_variants


class VariantDecoder:
    """JSON objects, lists and other values in UTF-8."""

    def __init__(self) -> None:
        """Prepare the decoder; raise PackageMissing: an executor may have another pyarrow than the driver."""
        require_variants()
        self._encoder = VariantEncoder()

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder.  The value null of JSON is a variant; a record without a value has none."""
        texts, misfits = decoded_texts(raw)
        encode = self._encoder.encode
        found: list[tuple[bytes, bytes] | None] = []
        for index, text in enumerate(texts.to_pylist()):
            try:
                found.append(None if text is None else encode(text))
            except NotVariant as error:
                found.append(None)
                misfits[index] = str(error)
        pairs = [pair or (b"", b"") for pair in found]
        column = pa.StructArray.from_arrays(
            [pa.array([pair[part] for pair in pairs], pa.binary()) for part in (0, 1)],
            fields=list(VARIANT_TYPE),
            mask=pa.array([pair is None for pair in found], pa.bool_()),
        )
        return DecodedColumn([column], misfits)


def json_of(variants: pa.StructArray) -> pa.Array:
    """Variants as JSON in UTF-8.  Raises ValueError for those that are none."""
    parts = zip(*(variants.field(name).to_pylist() for name in ("metadata", "value")), strict=True)
    texts = [
        json_text(metadata, value).encode() if is_valid else None
        for is_valid, (metadata, value) in zip(variants.is_valid().to_pylist(), parts, strict=True)
    ]
    return pa.array(texts, pa.binary())
