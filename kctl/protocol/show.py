"""Shows the source of a message's compiled codec, for debugging."""

from __future__ import annotations

from kctl.protocol.decoding import write_decoder
from kctl.protocol.definition import definition_of
from kctl.protocol.encoding import write_encoder


def codec_source(cls: type, version: int) -> str:
    """Return the source of the decoder and the encoder of one version.  Raises ValueError if there is no such
    version.
    """
    definition = definition_of(cls)
    if version not in definition.versions:
        raise ValueError(f"{definition.name} has no version {version}")
    sources = (write_decoder(cls, version).text(), write_encoder(cls, version).text())
    return f"# {definition.name} v{version}\n\n" + "\n\n".join(sources)
