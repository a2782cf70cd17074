"""Protobuf messages without a registry, by a file that `protoc --descriptor_set_out` has written.

The record is the message alone, as producers without a registry write it.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from kctl.client.registry.codecs import Decoded
from kctl.client.registry.protobuf import WELL_KNOWN, json_of, message_of_json, well_known_file
from kctl.client.registry.schema import NO_ID, SchemaError


class DescribedMessages:
    """Messages of one type."""

    def __init__(self, descriptor_set: bytes, type_name: str, path: str) -> None:
        """`path` names the file in errors.  Raises SchemaError."""
        files = descriptor_pb2.FileDescriptorSet()
        try:
            files.ParseFromString(descriptor_set)
        except DecodeError:
            raise SchemaError(f"{path} is not a descriptor set of protoc --descriptor_set_out") from None
        self._pool = _pool_of({file.name: file for file in files.file}, path)
        try:
            self._class = GetMessageClass(self._pool.FindMessageTypeByName(type_name))
        except KeyError:
            names = ", ".join(_type_names(files)[:10])
            raise SchemaError(f"{path} has no message type {type_name}; it has {names or 'none'}") from None

    def decode(self, data: bytes) -> Decoded:
        """Return the JSON of a message.  Raises SchemaError."""
        message = self._class()
        try:
            message.ParseFromString(data)
        except (DecodeError, ValueError, TypeError, RecursionError):
            raise SchemaError(f"it is not a {self._class.DESCRIPTOR.full_name}") from None
        return Decoded(json_of(message, self._pool), NO_ID)

    def encode(self, data: bytes) -> bytes:
        """Return the message of a JSON text.  Raises SchemaError."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise SchemaError("it is not JSON in UTF-8") from None
        return message_of_json(text, self._class, self._pool)


def _pool_of(files: dict[str, descriptor_pb2.FileDescriptorProto], path: str) -> DescriptorPool:
    """Return the descriptors of all files, each added after those that it imports.  Raises SchemaError."""
    pool, begun = DescriptorPool(), set[str]()
    left = [(name, False) for name in reversed(files)]
    while left:
        name, has_imports = left.pop()
        if name in begun and not has_imports:
            continue
        file = files.get(name) or (well_known_file(name) if name in WELL_KNOWN else None)
        if file is None:
            raise SchemaError(f"{path} lacks {name}, which it imports: use protoc --include_imports")
        if not has_imports:
            begun.add(name)
            left += [(name, True), *((imported, False) for imported in file.dependency)]
            continue
        try:
            pool.Add(file)
        except (TypeError, ValueError) as error:  # also for files that import each other
            raise SchemaError(f"{path} has an invalid descriptor of {name}: {str(error)[:200]}") from None
    return pool


def _type_names(files: descriptor_pb2.FileDescriptorSet) -> list[str]:
    return [
        ".".join(filter(None, (file.package, message.name))) for file in files.file for message in file.message_type
    ]
