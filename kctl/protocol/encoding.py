"""Compiles definitions to encoders: one flat Python function per (message, version).

In the generated functions `parts` collects bytes, which are joined at the end.  Consecutive fields of fixed size are
packed by one `pack`, together with the length of the variable-sized field after them.  Record batches are not joined:
the bytes before them become a chunk and they become the next one, so that they are sent without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kctl.errors import TextTooLong
from kctl.protocol.decoding import STRING_BYTES_MAX
from kctl.protocol.definition import FIXED_FORMATS, Definition, Field, definition_of
from kctl.protocol.source import Source, fields_of
from kctl.protocol.varint import SMALL_UVARINTS, uvarint


def compile_encoder(cls: type, version: int) -> Callable[[Any], list[Any]]:
    """Return a function message -> chunks; it raises ValueError or struct.error for values that do not fit."""
    return write_encoder(cls, version).function()


def write_encoder(cls: type, version: int) -> Source:
    """Return the source of that function."""
    return _EncoderWriter(cls, version).source


class _EncoderWriter:
    def __init__(self, cls: type, version: int) -> None:
        definition = definition_of(cls)
        self.version = version
        self.flexible = definition.is_flexible(version)
        self.source = Source("encode", definition, version)
        self.line, self.block = self.source.line, self.source.block
        self.run: list[tuple[str, str]] = []
        self.parts = "parts"
        self.path: list[str] = [definition.name]
        with self.block("def encode(o):"):
            self.line("parts = []")
            self.line("chunks = []")
            self._struct(definition, "o")
            with self.block("if parts:"):
                self.line("chunks.append(b''.join(parts))")
            self.line("return chunks")

    def _raise(self, what: str, error: type[ValueError] = ValueError) -> None:
        message = f"{'.'.join(self.path)} {what} in version {self.version}"
        self.line(f"raise {self.source.constant(error, error.__name__)}({message!r})")

    def _struct(self, definition: Definition, value: str) -> None:
        in_order, tagged, absent = fields_of(definition, self.version)
        for field in absent:
            if not field.ignorable:
                self._refuse(field, f"{value}.{field.name}")
        for field in in_order:
            self.path.append(field.name)
            self._value(field, f"{value}.{field.name}")
            self.path.pop()
        if self.flexible:
            if tagged:
                self._tagged(tagged, value)
            else:
                self.run.append(("", "x"))
        self._flush()

    def _refuse(self, field: Field, value: str) -> None:
        self.path.append(field.name)
        with self.block(f"if {self._differs(field, value)}:"):
            self._raise("does not exist")
        self.path.pop()

    def _differs(self, field: Field, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {self.source.literal(field.default)}"

    def _add(self, expression: str) -> None:
        self.line(f"{self.parts}.append({expression})")

    def _flush(self) -> None:
        """Write code that packs the collected run."""
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        values = [value for value, _ in self.run if value]
        self.run = []
        if not values:
            self._add(repr(b"\0" * len(codes)))
            return
        pack = self.source.packer("pack", codes)
        self._add(f"{pack}({', '.join(values)})")

    def _value(self, field: Field, value: str) -> None:
        if field.kind == "uuid":
            self.run.append((f"{value}.bytes", "16s"))
        elif field.kind in FIXED_FORMATS:
            self.run.append((value, FIXED_FORMATS[field.kind]))
        elif field.struct is not None:
            self._nested(field, field.struct, value)
        elif field.kind == "array":
            self._array(field, value)
        else:
            self._sized(field, value)

    def _nested(self, field: Field, struct_class: type, value: str) -> None:
        """Write code for a struct outside of arrays; a nullable one is preceded by 1 or -1 (null), in tagged fields
        by 1 or 0.
        """
        inner = self.source.variable("o")
        self.line(f"{inner} = {value}")
        if self.version not in field.nullable:
            with self.block(f"if {inner} is None:"):
                self._raise("is None")
            self._struct(definition_of(struct_class), inner)
            return
        self._flush()
        with self.block(f"if {inner} is None:"):
            self._add(repr(b"\xff" if field.tag is None else b"\0"))
        with self.block("else:"):
            self.run.append(("1", "b"))
            self._struct(definition_of(struct_class), inner)

    def _sized(self, field: Field, value: str) -> None:
        """Write code for strings, bytes and records: the length is part of the run, the bytes follow."""
        name, length = self.source.variable("s"), self.source.variable("n")
        self.line(f"{name} = {value}")
        with self._unless_null(field, name, length):
            if field.kind == "string":
                self.line(f"{name} = {name}.encode()")
            self.line(f"{length} = len({name})")
        if field.kind == "string":
            with self.block(f"if {length} > {STRING_BYTES_MAX}:"):
                self._raise(f"is longer than {STRING_BYTES_MAX} bytes", TextTooLong)
        self._length(field, length)
        with self.block(f"if {length} > 0:"):
            if field.kind == "records":
                assert self.parts == "parts", "records cannot be tagged"
                self.line("chunks.append(b''.join(parts))")
                self.line(f"chunks.append({name})")
                self.line("parts = []")
            else:
                self._add(name)

    def _unless_null(self, field: Field, name: str, length: str) -> Any:
        with self.block(f"if {name} is None:"):
            if self.version in field.nullable:
                self.line(f"{length} = -1")
            else:
                self._raise("is None")
        return self.block("else:")

    def _length(self, field: Field, length: str) -> None:
        if not self.flexible:
            self.run.append((length, "h" if field.kind == "string" else "i"))
            self._flush()
            return
        self._flush()
        small, large = self.source.constant(SMALL_UVARINTS, "uvarints"), self.source.constant(uvarint, "uvarint")
        self._add(f"{small}[{length} + 1] if {length} < 127 else {large}({length} + 1)")

    def _array(self, field: Field, value: str) -> None:
        element = field.element
        assert element is not None
        name, length, item = (self.source.variable(stem) for stem in ("array", "n", "o"))
        self.line(f"{name} = {value}")
        with self._unless_null(field, name, length):
            self.line(f"{length} = len({name})")
        self._length(field, length)
        with self.block(f"if {length} > 0:"):
            if element.kind in FIXED_FORMATS and element.kind != "uuid":
                pack = self.source.constant(struct.pack, "pack")
                self._add(f"{pack}(f'>{{{length}}}{FIXED_FORMATS[element.kind]}', *{name})")
                return
            with self.block(f"for {item} in {name}:"):
                if element.struct is not None:
                    self._struct(definition_of(element.struct), item)
                else:
                    self._value(element, item)
                    self._flush()

    def _tagged(self, tagged: list[Field], value: str) -> None:
        """Write code for tagged fields that differ from their default; usually there are none."""
        self._flush()
        differences = {field.name: self._differs(field, f"{value}.{field.name}") for field in tagged}
        with self.block(f"if {' or '.join(differences.values())}:"):
            self._tagged_section(tagged, differences, value)
        with self.block("else:"):
            self._add(repr(b"\0"))

    def _tagged_section(self, tagged: list[Field], differences: dict[str, str], value: str) -> None:
        tags, outer = self.source.variable("tags"), self.parts
        self.line(f"{tags} = []")
        for field in tagged:
            self.path.append(field.name)
            with self.block(f"if {differences[field.name]}:"):
                self.parts = self.source.variable("parts")
                self.line(f"{self.parts} = []")
                self._value(field, f"{value}.{field.name}")
                self._flush()
                self.line(f"{tags}.append(({field.tag}, b''.join({self.parts})))")
            self.parts = outer
            self.path.pop()
        varint = self.source.constant(uvarint, "uvarint")
        self._add(f"{varint}(len({tags}))")
        with self.block(f"for tag, payload in {tags}:"):
            self._add(f"{varint}(tag) + {varint}(len(payload)) + payload")
