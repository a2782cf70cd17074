"""The source text of a Protobuf file, made of its descriptor: equal definitions have equal texts.  Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.unknown_fields import UnknownFieldSet

_TYPES = {value: name.removeprefix("TYPE_").lower() for name, value in FieldDescriptorProto.Type.items()}
_MAX_RANGE = 536_870_912
_QUOTED = (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)


class NotPrintable(ValueError):
    """A file with parts whose text the descriptor does not have; the text names one."""


def protobuf_text(file: FileDescriptorProto) -> str:
    """Return the text.  Raises NotPrintable for custom options, extensions, groups and editions."""
    if file.extension:
        raise NotPrintable("extensions")
    if file.syntax not in {"", "proto2", "proto3"}:
        raise NotPrintable("editions")
    blocks = [[f'syntax = "{file.syntax or "proto2"}";', *([f"package {file.package};"] if file.package else [])]]
    kinds = dict.fromkeys(file.public_dependency, "public ") | dict.fromkeys(file.weak_dependency, "weak ")
    imports = [f'import {kinds.get(index, "")}"{name}";' for index, name in enumerate(file.dependency)]
    blocks += [imports, [f"option {option};" for option in _options(file)]]
    printer = _Printer(file)
    blocks += [printer.message(message, (), "") for message in file.message_type]
    blocks += [list(_enum(enum, "")) for enum in file.enum_type]
    blocks += [printer.service(service) for service in file.service]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


class _Printer:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._prefix = f".{file.package}." if file.package else "."
        self._package = frozenset(file.package.split("."))
        self._is_proto3 = file.syntax == "proto3"

    def message(self, message: DescriptorProto, outer: Sequence[DescriptorProto], indent: str) -> list[str]:
        if message.extension or message.extension_range:
            raise NotPrintable("extensions")
        scopes = (*outer, message)
        inner = f"{indent}  "
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        lines = [f"{indent}message {message.name} {{", *(f"{inner}option {text};" for text in _options(message))]
        lines += _reserved(message, inner, _MAX_RANGE)
        oneofs: dict[int, list[str]] = {}
        for field in message.field:
            is_member = field.HasField("oneof_index") and not field.proto3_optional
            if not is_member:
                lines.append(self._field(field, scopes, maps, inner))
                continue
            if field.oneof_index not in oneofs:
                oneofs[field.oneof_index] = block = [f"{inner}oneof {message.oneof_decl[field.oneof_index].name} {{"]
                block += [f"{inner}  option {text};" for text in _options(message.oneof_decl[field.oneof_index])]
            oneofs[field.oneof_index].append(self._field(field, scopes, maps, f"{inner}  ", is_member=True))
        for block in oneofs.values():
            lines += [*block, f"{inner}}}"]
        for nested in message.nested_type:
            if nested.name not in maps:
                lines += ["", *self.message(nested, scopes, inner)]
        for enum in message.enum_type:
            lines += ["", *_enum(enum, inner)]
        return [*lines, f"{indent}}}"]

    def _field(
        self,
        field: FieldDescriptorProto,
        scopes: Sequence[DescriptorProto],
        maps: dict[str, DescriptorProto],
        indent: str,
        *,
        is_member: bool = False,
    ) -> str:
        options = list(_options(field, skipped={"default"}))
        if field.HasField("default_value"):
            text = _quoted(field.default_value) if field.type in _QUOTED else field.default_value
            if field.type == FieldDescriptorProto.TYPE_BYTES:
                text = f'"{field.default_value}"'
            options.insert(0, f"default = {text}")
        if field.json_name and field.json_name != _json_name(field.name):
            options.append(f"json_name = {_quoted(field.json_name)}")
        entry = (
            maps.get(field.type_name.rpartition(".")[2]) if field.type == FieldDescriptorProto.TYPE_MESSAGE else None
        )
        if entry is not None and field.type_name.endswith(f".{scopes[-1].name}.{entry.name}"):
            key, value = (self._type(part, scopes) for part in entry.field)
            label, kind = "", f"map<{key}, {value}>"
        else:
            label, kind = self._label(field, is_member=is_member), self._type(field, scopes)
        suffix = f" [{', '.join(options)}]" if options else ""
        return f"{indent}{label}{kind} {field.name} = {field.number}{suffix};"

    def _label(self, field: FieldDescriptorProto, *, is_member: bool) -> str:
        if is_member:
            return ""
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        return "" if self._is_proto3 and not field.proto3_optional else "optional "

    def _type(self, field: FieldDescriptorProto, scopes: Sequence[DescriptorProto]) -> str:
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            raise NotPrintable("groups")
        return self._name(field.type_name, scopes) if field.type_name else _TYPES[field.type]

    def _name(self, full: str, scopes: Sequence[DescriptorProto]) -> str:
        """Return a type relative to the package, or its full name, unless another one would be found in its place."""
        relative = full.removeprefix(self._prefix).removeprefix(".")
        first = relative.partition(".")[0]
        nested = {inner.name for scope in scopes for inner in (*scope.nested_type, *scope.enum_type)}
        is_hidden = first in nested or (not full.startswith(self._prefix) and first in self._package)
        return full if is_hidden else relative

    def service(self, service: ServiceDescriptorProto) -> list[str]:
        lines = [f"service {service.name} {{", *(f"  option {text};" for text in _options(service))]
        for method in service.method:
            sent = ("stream " if method.client_streaming else "") + self._name(method.input_type, ())
            received = ("stream " if method.server_streaming else "") + self._name(method.output_type, ())
            line = f"  rpc {method.name} ({sent}) returns ({received})"
            options = [f"    option {text};" for text in _options(method)]
            lines += [f"{line} {{", *options, "  }"] if options else [f"{line};"]
        return [*lines, "}"]


def _enum(enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    yield from (f"{indent}  option {text};" for text in _options(enum))
    yield from _reserved(enum, f"{indent}  ", None)
    for value in enum.value:
        options = ", ".join(_options(value))
        yield f"{indent}  {value.name} = {value.number}{f' [{options}]' if options else ''};"
    yield f"{indent}}}"


def _reserved(holder: Any, indent: str, end: int | None) -> Iterator[str]:
    """Yield the reserved numbers and names; the end of a range is excluded for messages and included for enums."""
    ranges = []
    for span in holder.reserved_range:
        last = span.end if end is None else span.end - 1
        is_open = last == (2**31 - 1 if end is None else end - 1)
        ranges.append(str(span.start) if last == span.start else f"{span.start} to {'max' if is_open else last}")
    if ranges:
        yield f"{indent}reserved {', '.join(ranges)};"
    if holder.reserved_name:
        yield f"{indent}reserved {', '.join(_quoted(name) for name in holder.reserved_name)};"


def _options(holder: Any, skipped: Iterable[str] = ()) -> Iterator[str]:
    """Yield `name = value` of the options, by number."""
    options = holder.options
    if len(UnknownFieldSet(options)) or options.uninterpreted_option:
        raise NotPrintable("custom options")
    for field, value in options.ListFields():
        if field.name in skipped or field.name == "map_entry":
            continue
        if field.is_extension or field.type == FieldDescriptor.TYPE_MESSAGE:
            raise NotPrintable("custom options")
        values = value if field.is_repeated else [value]
        for element in values:
            yield f"{field.name} = {_value(field, element)}"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(field: Any, value: Any) -> str:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return str(field.enum_type.values_by_number[value].name)
    return _quoted(value)


def _json_name(name: str) -> str:
    """Return the name in JSON that protoc gives a field."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
