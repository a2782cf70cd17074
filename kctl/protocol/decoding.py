"""Compiles definitions to decoders: one flat Python function per (message, version).

In the generated functions `b` is the buffer, `p` the position, `end` the length.  Consecutive fields of fixed size are
read by one `unpack_from`, together with the length of the variable-sized field after them; the single bytes that start
a compact length or a section of tagged fields are part of such a run.  Slices past the end of a buffer are shorter
without an error, but positions never decrease, so one comparison at the end finds every overrun.  Counts of arrays are
checked before the loop: an element takes at least one byte, so a wrong count cannot allocate more than the size of the
message allows.  `cost_left` is the remaining cost of the request, charged before each loop; `tags_left` the remaining
number of tagged fields.  kctl.limits explains both bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.limits import TAGGED_FIELDS_MAX
from kctl.protocol.cost import BYTES_PER_COST, LONG_STRING_BYTES, CostExceeded, element_cost
from kctl.protocol.definition import FIXED_FORMATS, FIXED_SIZES, Definition, Field, definition_of
from kctl.protocol.source import Source, fields_of
from kctl.protocol.varint import VARINT_MAX, finish_uvarint, skip_tagged_fields

STRING_BYTES_MAX = 32767


def compile_decoder(
    cls: type, version: int, *, is_small: bool = False, cost_max: int | None = None
) -> Callable[[memoryview, int], tuple[Any, int]]:
    """Return a function (buffer, position) -> (message, next position).

    With `is_small` the cost is not counted, because a message of at most SMALL_BYTES cannot exceed the bound.
    `cost_max` replaces the bound of the definition.  The function raises MalformedRequest, CostExceeded among them,
    struct.error, IndexError or UnicodeDecodeError; `codec.decode` turns all of them into MalformedRequest.
    """
    return write_decoder(cls, version, is_small=is_small, cost_max=cost_max).function()


def write_decoder(cls: type, version: int, *, is_small: bool = False, cost_max: int | None = None) -> Source:
    """Return the source of that function."""
    return _DecoderWriter(cls, version, is_small=is_small, cost_max=cost_max).source


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """Return the minimum size of a value of this field in bytes."""
    if field.kind in FIXED_FORMATS:
        return FIXED_SIZES[FIXED_FORMATS[field.kind]]
    if field.struct is not None and version in field.nullable:
        return 1
    if field.struct is not None:
        in_order, _, _ = fields_of(definition_of(field.struct), version)
        return sum(minimum_size(inner, version, flexible) for inner in in_order) + flexible
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


@lru_cache(maxsize=4096)
def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def _malformed(where: str, what: str) -> MalformedRequest:
    return MalformedRequest(f"{where} {what}")


class _DecoderWriter:
    def __init__(self, cls: type, version: int, *, is_small: bool, cost_max: int | None) -> None:
        definition = definition_of(cls)
        self.version = version
        self.flexible = definition.is_flexible(version)
        self.cost_max = None if is_small else cost_max or definition.cost_max
        self.source = Source("decode", definition, version, "" if self.cost_max is None else " counting")
        self.line, self.block = self.source.line, self.source.block
        self.run: list[tuple[str, str]] = []
        self.after_run: list[str] = []
        self.path: list[str] = [definition.name]
        with self.block("def decode(b, p):"):
            self.line("end = len(b)")
            if self.cost_max is not None:
                self.line(f"cost_left = {self.cost_max}")
            if self.flexible:
                self.line(f"tags_left = {VARINT_MAX if definition.cost_max is None else TAGGED_FIELDS_MAX}")
            self.line(f"o = {self._new(cls)}")
            self._struct(definition, "o")
            with self.block("if p > end:"):
                self._raise("is incomplete", at=definition.name)
            self.line("return o, p")

    def _new(self, cls: type) -> str:
        return f"{self.source.constant(object.__new__, 'new')}({self.source.constant(cls, cls.__name__)})"

    def _raise(self, what: str, at: str | None = None) -> None:
        where = at or ".".join(self.path)
        self.line(f"raise {self.source.constant(_malformed, 'malformed')}({where!r}, {what!r})")

    def _charge(self, cost: str) -> None:
        """Write code that subtracts `cost`, an expression, from the remaining cost."""
        self.line(f"cost_left -= {cost}")
        with self.block("if cost_left < 0:"):
            self.line(
                f"raise {self.source.constant(CostExceeded, 'CostExceeded')}"
                f"({f'{self.path[0]} costs more than {self.cost_max} to decode'!r})"
            )

    def _struct(self, definition: Definition, target: str) -> None:
        in_order, tagged, absent = fields_of(definition, self.version)
        for field in absent + tagged:
            self.line(f"{target}.{field.name} = {self.source.literal(field.default)}")
        for field in in_order:
            self.path.append(field.name)
            self._value(field, f"{target}.{field.name}")
            self.path.pop()
        if self.flexible:
            self._tagged(tagged, target)
        self._flush()

    def _read(self, target: str, code: str) -> None:
        self.run.append((target, code))

    def _flush(self) -> None:
        """Write code that reads the collected run by one unpack."""
        if not self.run:
            return
        targets, codes = zip(*self.run, strict=True)
        self.run = []
        size = sum(FIXED_SIZES.get(code, 1) for code in codes)
        if codes == ("B",):
            self.line(f"{targets[0]} = b[p]")
        else:
            unpack = self.source.packer("unpack_from", "".join(codes))
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(b, p)")
        self.line(f"p += {size}")
        for line in self.after_run:
            self.line(line)
        self.after_run = []

    def _value(self, field: Field, target: str) -> None:
        if field.kind == "uuid":
            raw = self.source.variable("raw")
            self._read(raw, "16s")
            self.after_run.append(f"{target} = {self.source.constant(_uuid, 'uuid')}({raw})")
        elif field.kind in FIXED_FORMATS:
            self._read(target, FIXED_FORMATS[field.kind])
        elif field.struct is not None and self.version in field.nullable:
            self._presence(field)
            with self.block("if n < 0:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self._inner(field.struct, target)
        elif field.struct is not None:
            self._inner(field.struct, target)
        else:
            self._length(field)
            self._null_or(field, target)

    def _presence(self, field: Field) -> None:
        """Write code that reads the presence of a nullable struct into `n`, negative for null.

        KIP-893: a byte, 1 or -1.  In tagged fields Kafka's generated code has a varint instead, 1 or 0.
        """
        if field.tag is not None:
            self._length(field)
        else:
            self._read("n", "b")
            self._flush()

    def _inner(self, struct_class: type, target: str) -> None:
        inner = self.source.variable("o")
        self.line(f"{target} = {inner} = {self._new(struct_class)}")
        self._struct(definition_of(struct_class), inner)

    def _length(self, field: Field) -> None:
        """Write code that reads the length or count of a variable-sized field into `n`, negative for null."""
        if not self.flexible:
            self._read("n", "h" if field.kind == "string" else "i")
            self._flush()
            return
        self._read("n", "B")
        self._flush()
        with self.block("if n > 127:"):
            self._finish_uvarint("n")
            if field.kind == "string":
                with self.block(f"if n > {STRING_BYTES_MAX + 1}:"):
                    self._raise(f"is longer than {STRING_BYTES_MAX} bytes")
        self.line("n -= 1")

    def _finish_uvarint(self, name: str) -> None:
        self.line(f"{name}, p = {self.source.constant(finish_uvarint, 'finish_uvarint')}(b, p, {name})")

    def _null_or(self, field: Field, target: str) -> None:
        if self.version not in field.nullable:
            with self.block("if n < 0:"):
                self._raise("is null")
            self._sized(field, target)
            return
        with self.block("if n < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._sized(field, target)

    def _sized(self, field: Field, target: str) -> None:
        if field.kind == "array":
            assert field.element is not None
            self._array(field.element, target)
            return
        expressions = {"string": "str(b[p:e], 'utf-8')", "bytes": "bytes(b[p:e])", "records": "b[p:e]"}
        if self.cost_max is not None and field.kind in BYTES_PER_COST:
            with self.block(f"if n > {LONG_STRING_BYTES}:"):
                self._charge(f"n // {BYTES_PER_COST[field.kind]}")
        self.line("e = p + n")
        self.line(f"{target} = {expressions[field.kind]}")
        self.line("p = e")

    def _array(self, element: Field, target: str) -> None:
        size = minimum_size(element, self.version, self.flexible)
        assert size > 0
        with self.block(f"if n * {size} > end - p:" if size > 1 else "if n > end - p:"):
            self._raise("has more elements than bytes")
        if self.cost_max is not None:
            self._charge(f"n * {element_cost(element, self.version)}")
        if element.kind == "uuid":
            self.line("e = p + n * 16")
            self.line(
                f"{target} = [{self.source.constant(_uuid, 'uuid')}(bytes(b[q:q + 16])) for q in range(p, e, 16)]"
            )
            self.line("p = e")
        elif element.kind in FIXED_FORMATS:
            unpack = self.source.constant(struct.unpack_from, "unpack")
            self.line(f"{target} = [*{unpack}(f'>{{n}}{FIXED_FORMATS[element.kind]}', b, p)]")
            self.line(f"p += n * {size}" if size > 1 else "p += n")
        elif element.struct is not None and self._all_fixed(element.struct):
            self._array_of_fixed(element.struct, target, size)
        else:
            self._array_loop(element, target)

    def _array_loop(self, element: Field, target: str) -> None:
        array, item = self.source.variable("array"), self.source.variable("o")
        self.line(f"{target} = {array} = []")
        with self.block("for _ in range(n):"):
            if element.struct is not None:
                self.line(f"{item} = {self._new(element.struct)}")
                self.line(f"{array}.append({item})")
                self._struct(definition_of(element.struct), item)
            else:
                self._value(element, item)
                self._flush()
                self.line(f"{array}.append({item})")

    def _all_fixed(self, cls: type) -> bool:
        in_order, _, _ = fields_of(definition_of(cls), self.version)
        return not self.flexible and all(field.kind in FIXED_FORMATS and field.kind != "uuid" for field in in_order)

    def _array_of_fixed(self, cls: type, target: str, size: int) -> None:
        """Write code for an array of structs of one fixed size: one `iter_unpack` over all of them."""
        in_order, _, absent = fields_of(definition_of(cls), self.version)
        codes = "".join(FIXED_FORMATS[field.kind] for field in in_order)
        unpack = self.source.packer("iter_unpack", codes)
        array, item = self.source.variable("array"), self.source.variable("o")
        names = [self.source.variable("x") for _ in in_order]
        self.line(f"e = p + n * {size}")
        self.line(f"{target} = {array} = []")
        with self.block(f"for {', '.join(names)}{',' if len(names) == 1 else ''} in {unpack}(b[p:e]):"):
            self.line(f"{item} = {self._new(cls)}")
            self.line(f"{array}.append({item})")
            for field, name in zip(in_order, names, strict=True):
                self.line(f"{item}.{field.name} = {name}")
            for field in absent:
                self.line(f"{item}.{field.name} = {self.source.literal(field.default)}")
        self.line("p = e")

    def _tagged(self, tagged: list[Field], target: str) -> None:
        self._read("n", "B")
        self._flush()
        with self.block("if n:"):
            if not tagged:
                skip = self.source.constant(skip_tagged_fields, "skip_tagged_fields")
                self.line(f"p, tags_left = {skip}(b, p, n, tags_left)")
                return
            with self.block("if n > 127:"):
                self._finish_uvarint("n")
            self.line("tags_left -= n")
            with self.block("if tags_left < 0:"):
                self._raise("has too many tagged fields", at=self.path[0])
            with self.block("for _ in range(n):"):
                self._tagged_field(tagged, target)

    def _tagged_field(self, tagged: list[Field], target: str) -> None:
        tag, stop = self.source.variable("tag"), self.source.variable("stop")
        for name in (tag, stop):
            self._read(name, "B")
            self._flush()
            with self.block(f"if {name} > 127:"):
                self._finish_uvarint(name)
        self.line(f"{stop} += p")
        for number, field in enumerate(tagged):
            with self.block(f"{'el' if number else ''}if {tag} == {field.tag}:"):
                self.path.append(field.name)
                self._value(field, f"{target}.{field.name}")
                self._flush()
                with self.block(f"if p != {stop}:"):
                    self._raise("differs from its size")
                self.path.pop()
        with self.block("else:"):
            self.line(f"p = {stop}")
