"""The names and the order of what an export has: --flatten, --rename and --sort-by.  Pure.

    --flatten '{path}'            value.customer.name is the column customer_name
    --flatten '{column}.{path:-}' is refused: tables take a dot in a name for a path
    --rename value.customer.id=customer

Everything but the files of an export has the columns of records with their structs; files have these (kctl.tables.exec.
selection.laid_out).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from string import Formatter

from kctl.errors import UsageError
from kctl.tables.exec.schema.column_types import (
    VARIANT,
    Columns,
    Decoding,
    Struct,
    Type,
    is_column_name,
    kind_of,
    raw_name,
)
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.selection.row_filter import RECORD_TYPES
from kctl.tables.exec.selection.row_selection import HEADERS, RowSelection
from kctl.tables.exec.selection.transforms import IDENTITY

Path = tuple[str, ...]
DECODED = ("key", "value")
KEPT_NAMES = frozenset(
    {"topic", "partition", "offset", "incarnation", "key_rest", "value_rest", "key_raw", "value_raw"}
)
"""Columns by which kctl finds rows, and what has no column of its own."""
SORT_COLUMNS_MAX = 10
SEPARATOR = "_"
SEPARATOR_LENGTH_MAX = 5
_PLACES = frozenset({"column", "path", "name"})


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns of the files of an export.  Raises UsageError."""

    flatten: str = ""
    """The names of fields as columns of their own: a template with {path}, {name} and {column}; empty: they are in
    structs.
    """
    rename: tuple[tuple[str, str], ...] = ()
    """(path, name), such as (value.customer.id, customer)."""
    sort_by: tuple[str, ...] = ()
    """The columns by which the rows of each file are sorted, as paths."""

    def __post_init__(self) -> None:
        if self.flatten:
            self._check_template()
        for old, new in self.rename:
            if not all(old.split(".")) or old in KEPT_NAMES or old.startswith(f"{HEADERS}."):
                raise UsageError(f"--rename {old}={new}: {old or 'nothing'} is not a column that can have another name")
            if not is_column_name(new):
                raise UsageError(f"--rename {old}={new}: tables do not accept the name {new!r}")
        for name, paths in (("--rename", [old for old, _ in self.rename]), ("--sort-by", self.sort_by)):
            if twice := next((path for path in paths if list(paths).count(path) > 1), None):
                raise UsageError(f"{name}: {twice} is there twice")
        if len(self.sort_by) > SORT_COLUMNS_MAX:
            raise UsageError(f"--sort-by: at most {SORT_COLUMNS_MAX} columns are possible")
        for path in self.sort_by:
            if not all(path.split(".")) or set(path) & set(" ,\t\n"):
                raise UsageError(f"--sort-by: {path!r} is not the name of a column")

    def _check_template(self) -> None:
        try:
            places = [(name, form) for _, name, form, _ in Formatter().parse(self.flatten) if name is not None]
        except ValueError as error:
            raise UsageError(f"--flatten {self.flatten}: {error}") from None
        if unknown := next((name for name, _ in places if name not in _PLACES), None):
            raise UsageError(
                f"--flatten {self.flatten}: there is no {{{unknown}}}; write {{path}}, {{name}}, {{column}}"
            )
        if not {"path", "name"} & {name for name, _ in places}:
            raise UsageError(
                f"--flatten {self.flatten}: all columns would have the same name; write {{path}} or {{name}}"
            )
        for name, form in places:
            if form and (name != "path" or len(form) > SEPARATOR_LENGTH_MAX):
                raise UsageError(
                    f"--flatten {self.flatten}: only {{path:SEPARATOR}} has a form, of up to "
                    f"{SEPARATOR_LENGTH_MAX} characters"
                )
        if not is_column_name(name := self._flat_name(("value", "a", "b"))):
            raise UsageError(f"--flatten {self.flatten}: tables do not accept names such as {name!r}")

    @property
    def has_names(self) -> bool:
        """Whether columns have other names than those of records."""
        return bool(self.flatten or self.rename)

    @property
    def words(self) -> list[str]:
        """The options as words of a command line; see `of_words`."""
        words = ["--flatten", self.flatten] if self.flatten else []
        words += ["--rename", ",".join(f"{old}={new}" for old, new in self.rename)] if self.rename else []
        return words + (["--sort-by", ",".join(self.sort_by)] if self.sort_by else [])

    @classmethod
    def of_words(cls, words: Mapping[str, str]) -> ColumnLayout:
        """Return the layout of the options of an export, by name without dashes."""
        pairs = [pair.partition("=") for pair in words.get("rename", "").split(",") if pair]
        sort_by = words.get("sort-by", "")
        return cls(
            words.get("flatten", ""),
            tuple((old, new) for old, _, new in pairs),
            tuple(sort_by.split(",")) if sort_by else (),
        )

    def name_of(self, path: Path) -> str:
        """Return the name of a column; of a field within a struct, without --flatten."""
        renamed = dict(self.rename).get(".".join(path))
        if renamed is not None:
            return renamed
        return self._flat_name(path) if self.flatten and path[1:] else path[-1]

    def _flat_name(self, path: Path) -> str:
        found = []
        for text, name, form, _ in Formatter().parse(self.flatten):
            values = {"column": path[0], "name": path[-1], "path": (form or SEPARATOR).join(path[1:])}
            found += [text, values[name] if name else ""]
        return "".join(found)

    def check(
        self,
        topic: str,
        columns: Columns,
        rows: RowSelection,
        by: Partitioning,
        *,
        others: Mapping[str, Type],
        are_hidden: bool,
    ) -> None:
        """Raise UsageError for columns that a topic does not have, and for two that would have one name.

        `others` are the types of columns that are not in every export.  `are_hidden`: partitions are no columns, as
        those of Iceberg.
        """
        nodes = dict(_nodes(columns, others))
        self._check_paths(topic, nodes, rows)
        if not self.has_names:
            return
        taken: dict[tuple[Path, str], str] = {}
        for path in self._placed(nodes):
            if not rows.has(".".join(path)):
                continue
            name = self._check_name(path)
            other = taken.setdefault((self._parent(path), name.lower()), ".".join(path))
            if other != ".".join(path):
                raise UsageError(
                    f"topic {topic}: {other} and {'.'.join(path)} would both be the column {name}: give --rename "
                    f"{'.'.join(path)}=NAME{', or another --flatten' if self.flatten else ''}"
                )
        self._check_partitions(by, taken, are_hidden=are_hidden)

    def _check_paths(self, topic: str, nodes: Mapping[Path, Type], rows: RowSelection) -> None:
        named = [("--rename", old) for old, _ in self.rename] + [("--sort-by", name) for name in self.sort_by]
        for option, name in named:
            path = tuple(name.split("."))
            type_ = nodes.get(path)
            if type_ is None or not rows.has(name):
                raise UsageError(
                    f"{option} {name}: topic {topic} has no such column; --dry-run without it shows the columns"
                )
            if option == "--sort-by" and (not isinstance(type_, str) or type_ == VARIANT):
                raise UsageError(f"--sort-by {name}: {kind_of(type_)} has no order")
            if option == "--rename" and self.flatten and _is_split(path, type_):
                raise UsageError(f"--rename {name}: with --flatten, the fields of this struct are columns: name these")

    @staticmethod
    def _check_partitions(by: Partitioning, taken: Mapping[tuple[Path, str], str], *, are_hidden: bool) -> None:
        terms = {term.column: term for term in by.terms}
        for column in by.columns:
            other = taken.get(((), column.lower()))
            is_same = column in terms and terms[column].transform == IDENTITY and terms[column].path == other
            if other is not None and not (are_hidden and (by.unit_us or is_same)):
                raise UsageError(
                    f"--partition-by {by.by}: {other} is the column {column}, which may not be a partition too: give "
                    f"--rename {other}=NAME"
                )

    def _check_name(self, path: Path) -> str:
        name = self.name_of(path)
        if not is_column_name(name):
            raise UsageError(
                f"{'.'.join(path)}: tables do not accept the name {name!r}: give --rename, or another --flatten"
            )
        return name

    def without_collisions(
        self, columns: Columns, held: Mapping[str, Type], by: Partitioning, others: Mapping[str, Type]
    ) -> Columns:
        """Return the columns without those that the table does not have yet, and whose name another one has.

        They are in the rest, as all that has no column.  `held` are the types in the table.
        """
        if not self.has_names:
            return columns
        before = replace(
            columns,
            key=replace(columns.key, type=held["key"]),
            value=replace(columns.value, type=held["value"]),
        )
        placed = list(self._placed(dict(_nodes(before, others))))
        taken = {(self._parent(path), self.name_of(path).lower()) for path in placed}
        taken |= {((), column.lower()) for column in by.columns}
        known = set(placed)
        kept = {
            name: self._pruned((name,), getattr(columns, name).type, known, taken)
            for name in DECODED
            if getattr(columns, name).has_rest
        }
        return replace(
            columns, **{name: replace(getattr(columns, name), type=type_ or Struct()) for name, type_ in kept.items()}
        )

    def _pruned(self, path: Path, type_: Type, known: set[Path], taken: set[tuple[Path, str]]) -> Type | None:
        """Return the type without fields whose name is taken; None if that is its own."""
        is_split = isinstance(type_, Struct)
        if path not in known and path[1:] and not (self.flatten and is_split):
            name = (self._parent(path), self.name_of(path).lower())
            if name in taken or not is_column_name(name[1]):
                return None
            taken.add(name)
        if not isinstance(type_, Struct):
            return type_
        fields = [(name, self._pruned((*path, name), field, known, taken)) for name, field in type_.fields]
        return Struct(tuple((name, field) for name, field in fields if field is not None))

    def _placed(self, nodes: Mapping[Path, Type]) -> Iterator[Path]:
        """Yield the columns that have a name of their own in the files."""
        for path, type_ in nodes.items():
            if not (self.flatten and _is_split(path, type_)):
                yield path

    def _parent(self, path: Path) -> Path:
        return () if self.flatten else path[:-1]


def _is_split(path: Path, type_: Type) -> bool:
    """Return whether --flatten makes columns of the fields."""
    return path[0] in DECODED and isinstance(type_, Struct)


def _nodes(columns: Columns, others: Mapping[str, Type]) -> Iterator[tuple[Path, Type]]:
    """Yield the columns of a topic and the fields of their structs, those of lists excepted."""
    for name, decoding in zip(DECODED, (columns.key, columns.value), strict=True):
        yield from _fields((name,), decoding.type)
        for more in _more(name, decoding):
            yield (more,), "string"
    for name, record_type in RECORD_TYPES.items():
        yield (name,), record_type
    yield ("incarnation",), "int32"
    for name, type_ in others.items():
        yield (name,), type_


def _more(name: str, decoding: Decoding) -> Collection[str]:
    return [f"{name}_rest"] * decoding.has_rest + [raw_name(name)] * decoding.keeps_raw


def _fields(path: Path, type_: Type) -> Iterator[tuple[Path, Type]]:
    if not isinstance(type_, Struct):
        yield path, type_
        return
    if type_.fields:
        yield path, type_
    for name, field in type_.fields:
        yield from _fields((*path, name), field)


PLAIN_LAYOUT = ColumnLayout()
