"""Whether messages of one Protobuf file can be read with another one: the rules of Confluent's registry.  Pure.

Messages and fields are compared by name and number.  Of no library: none compares files and is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from kctl.schemas.formats.parsed import READER, WRITER, Budget, Difference
from kctl.schemas.formats.protobuf_schema import ProtobufModel

_Type = FieldDescriptorProto
_NUMERIC = {
    "number": {_Type.TYPE_INT32, _Type.TYPE_INT64, _Type.TYPE_UINT32, _Type.TYPE_UINT64, _Type.TYPE_BOOL},
    "signed": {_Type.TYPE_SINT32, _Type.TYPE_SINT64},
    "fixed32": {_Type.TYPE_FIXED32, _Type.TYPE_SFIXED32},
    "fixed64": {_Type.TYPE_FIXED64, _Type.TYPE_SFIXED64},
    "float": {_Type.TYPE_FLOAT},
    "double": {_Type.TYPE_DOUBLE},
}
_KINDS = {kind: name for name, kinds in _NUMERIC.items() for kind in kinds} | {
    _Type.TYPE_ENUM: "number",
    _Type.TYPE_STRING: "text",
    _Type.TYPE_BYTES: "text",
}
"""Scalars of one kind have the same encoding (protobuf.dev, Updating A Message Type)."""


class _Message(NamedTuple):
    type: DescriptorProto
    package: str
    local_name: str
    is_proto3: bool


class _Side:
    """The message types of a file and of those that it imports, by full name."""

    def __init__(self, model: ProtobufModel) -> None:
        self.messages: dict[str, _Message] = {}
        for file in (*model.imported, model.file):
            for name, message in _messages(file):
                full = f".{file.package}.{name}" if file.package else f".{name}"
                self.messages[full] = _Message(message, file.package, name, file.syntax == "proto3")
        package = f".{model.file.package}." if model.file.package else "."
        self.own = {name: self.messages[package + name] for name, _ in _messages(model.file)}

    def map_entry(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        """Return the type of the entries of a map; None for another field."""
        message = self.messages.get(field.type_name)
        return message.type if message is not None and message.type.options.map_entry else None


def _messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    left = [(message.name, message) for message in reversed(file.message_type)]
    while left:
        name, message = left.pop()
        yield name, message
        left += [(f"{name}.{nested.name}", nested) for nested in reversed(message.nested_type)]


def compare_protobuf(reader: ProtobufModel, writer: ProtobufModel) -> list[Difference]:
    """Return what prevents that messages of `writer` are read with `reader`.  Raises InvalidSchema."""
    return list(_Comparison(_Side(writer), _Side(reader)).differences(writer.file, reader.file))


class _Comparison:
    def __init__(self, old: _Side, new: _Side) -> None:
        self._old, self._new = old, new
        self._budget = Budget()
        self._open: set[tuple[int, int]] = set()

    def differences(self, original: FileDescriptorProto, update: FileDescriptorProto) -> Iterator[Difference]:
        if original.package != update.package:
            yield _difference("PACKAGE_CHANGED", "#/")
        for name, old in self._old.own.items():
            if old.type.options.map_entry:
                continue
            new = self._new.own.get(name)
            if new is None:
                yield _difference("MESSAGE_REMOVED", f"#/{name}")
            else:
                yield from self._of_messages(old, new, f"#/{name}")

    def _of_messages(self, old: _Message, new: _Message, path: str) -> Iterator[Difference]:
        pair = (id(old.type), id(new.type))
        if pair in self._open:
            return
        self._open.add(pair)
        before, after = ({field.number: field for field in side.type.field} for side in (old, new))
        yield from self._of_oneofs(old, new, path)
        for number in sorted({*before, *after}):
            self._budget.spend()
            original, update = before.get(number), after.get(number)
            if update is None and original is not None:
                yield from _removed(original, old, new, path)
            elif original is None and update is not None:
                if update.label == _Type.LABEL_REQUIRED:
                    yield _difference("REQUIRED_FIELD_ADDED", f"{path}/{number}")
            elif original is not None and update is not None:
                oneof = _oneof(update, new)
                place = f"{path}/{oneof}/{number}" if oneof else f"{path}/{number}"
                labels = _label(original, old), _label(update, new)
                yield from self._of_fields(original, update, labels, place)
        self._open.discard(pair)

    def _of_oneofs(self, old: _Message, new: _Message, path: str) -> Iterator[Difference]:
        """Yield fields that exclude each other now, and did not before."""
        origins: dict[str, list[str]] = {}
        fields = {field.number: field for field in old.type.field}
        for field in new.type.field:
            oneof, before = _oneof(field, new), fields.get(field.number)
            if oneof and before is not None:
                origins.setdefault(oneof, []).append(f"oneof:{_oneof(before, old)}" if _oneof(before, old) else "")
        for oneof, groups in origins.items():
            loose = groups.count("")
            if loose + len({group for group in groups if group}) > 1:
                name = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if loose > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                yield _difference(name, f"{path}/{oneof}")

    def _of_fields(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, labels: tuple[str, str], place: str
    ) -> Iterator[Difference]:
        entries = self._old.map_entry(old), self._new.map_entry(new)
        kinds = [
            "map" if entry is not None else _KINDS.get(field.type, "message")
            for field, entry in zip((old, new), entries, strict=True)
        ]
        is_scalar = [kind not in {"map", "message"} for kind in kinds]
        if kinds[0] != kinds[1]:
            yield _difference("FIELD_SCALAR_KIND_CHANGED" if all(is_scalar) else "FIELD_KIND_CHANGED", place)
        elif kinds[0] == "map":
            if entries[0] is not None and entries[1] is not None:
                for before, after in zip(entries[0].field, entries[1].field, strict=True):
                    yield from self._of_fields(before, after, ("", ""), place)
        elif kinds[0] == "message":
            yield from self._of_named_types(old, new, place)
        elif all(labels) and labels[0] != labels[1] and kinds[0] != "text":
            yield _difference("FIELD_NUMERIC_LABEL_CHANGED", place)

    def _of_named_types(self, old: FieldDescriptorProto, new: FieldDescriptorProto, place: str) -> Iterator[Difference]:
        before, after = self._old.messages.get(old.type_name), self._new.messages.get(new.type_name)
        names = [
            field.type_name if message is None else message.local_name
            for field, message in ((old, before), (new, after))
        ]
        if names[0] != names[1]:
            yield _difference("FIELD_NAMED_TYPE_CHANGED", place)
        elif before is not None and after is not None and before.type is not after.type:
            is_own = names[0] in self._old.own and names[0] in self._new.own
            if not is_own:  # Those of the files themselves are compared once.
                found = list(self._of_messages(before, after, f"#/{names[0]}"))
                yield from found
                if found:
                    yield _difference("FIELD_NAMED_TYPE_CHANGED", place)


def _oneof(field: FieldDescriptorProto, message: _Message) -> str:
    """Return the name of the oneof that has the field, empty for none; a proto3 `optional` is not one."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(message.type.oneof_decl[field.oneof_index].name)


def _label(field: FieldDescriptorProto, message: _Message) -> str:
    """Return the label that is written in the text, empty for none."""
    if field.label == _Type.LABEL_REPEATED:
        return "repeated"
    if _oneof(field, message) or (message.is_proto3 and not field.proto3_optional):
        return ""
    return "required" if field.label == _Type.LABEL_REQUIRED else "optional"


def _removed(field: FieldDescriptorProto, old: _Message, new: _Message, path: str) -> Iterator[Difference]:
    oneof = _oneof(field, old)
    if not oneof:
        if field.label == _Type.LABEL_REQUIRED:
            yield _difference("REQUIRED_FIELD_REMOVED", f"{path}/{field.number}")
        return
    members = {other.number for other in old.type.field if _oneof(other, old) == oneof}
    is_kept = oneof in {_oneof(other, new) for other in new.type.field}
    if is_kept or members & {other.number for other in new.type.field}:
        yield _difference("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{field.number}")


_TEXTS = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {new} schema does not match the package in the {old} schema",
    "MESSAGE_REMOVED": "The {new} schema is missing a MESSAGE type at path '{path}' in the {old} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {new} schema does not match the {old} schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the {new} schema does not match its kind in the {old} schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the {new} schema does not match its type in the {old} schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the {new} schema does not match its label in the {old} "
        "schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {new} schema is missing in the {old} schema",
    "REQUIRED_FIELD_REMOVED": ("The {new} schema is missing a required field at path: '{path}' in the {old} schema"),
    "ONEOF_FIELD_REMOVED": "The {new} schema is missing a oneof field at path '{path}' in the {old} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the {new} schema are outside a oneof in the {old} schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the {new} schema is outside an existing oneof in the {old} schema"
    ),
}


def _difference(name: str, path: str) -> Difference:
    return Difference(name, _TEXTS[name].format(path=path, new=READER, old=WRITER))
