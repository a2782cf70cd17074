"""Protobuf schemas: source text, or the descriptor of a file in base64, which is turned into text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kctl.schemas.formats.parsed import InvalidSchema, ParsedSchema
from kctl.schemas.formats.protobuf_text import NotPrintable, protobuf_text

Compile = Callable[[str, Mapping[str, str]], bytes]
"""The FileDescriptorSet of a text, which is its last file, and of those that it imports, by name.

Raises InvalidSchema.
"""


class ProtobufModel(NamedTuple):
    """A file and all that it imports."""

    file: FileDescriptorProto
    imported: tuple[FileDescriptorProto, ...]


def parse_protobuf(text: str, used: Mapping[str, str], compile_: Compile) -> ParsedSchema:
    """Return a schema; `used` are the texts of those that it uses, by the names of the references.

    Raises InvalidSchema.
    """
    source = _source_of(text)
    files = FileDescriptorSet.FromString(compile_(source, used)).file
    file = files[-1]
    try:
        canonical = protobuf_text(file)
    except NotPrintable:
        canonical = source  # With comments and its own format, but with everything.
    return ParsedSchema("PROTOBUF", canonical, ProtobufModel(file, tuple(files[:-1])))


def descriptor_text(parsed: ParsedSchema) -> str:
    """Return the descriptor of the file in base64, as clients ask for it with `format=serialized`."""
    file = FileDescriptorProto()
    file.CopyFrom(parsed.model.file)
    file.name = "default"
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _source_of(text: str) -> str:
    """Return the source text, also of a descriptor in base64."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return text
    try:
        return protobuf_text(file)
    except NotPrintable as error:
        raise InvalidSchema(f"the descriptor has {error}: register the source text instead") from None
    except (KeyError, IndexError, RecursionError):
        raise InvalidSchema("the descriptor is not that of a file") from None
