"""Which form the headers of records have in an export, or a query of Spark.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.errors import UsageError
from kctl.limits import EXPORT_COLUMNS_MAX
from kctl.spark.exec.column_types import is_column_name

LIST = "list"
MAP = "map"
COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class HeaderForm:
    """The form of the column `headers`.  Raises UsageError."""

    form: str = LIST
    """LIST keeps all entries in their order; MAP has the last value of each name; COLUMNS is a struct of some names."""
    names: tuple[str, ...] = ()
    """The headers that are columns; others are left out."""

    @classmethod
    def parse(cls, text: str) -> HeaderForm:
        """Reads `list`, `map` or `columns:NAME,NAME`."""
        form, colon, names = text.partition(":")
        if form in {LIST, MAP} and not colon:
            return cls(form)
        if form == COLUMNS and names:
            return cls(COLUMNS, tuple(name.strip() for name in names.split(",")))
        raise UsageError(f"the form of headers is list, map or columns:NAME,NAME, not '{text}'")

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_column_name(name):
                raise UsageError(
                    f"headers: tables do not accept {name!r} as the name of a column; use map, or rename the header"
                )
        if len({name.lower() for name in self.names}) < len(self.names):
            raise UsageError("headers: a name is there twice; names of columns are compared without case")
        if len(self.names) > EXPORT_COLUMNS_MAX:
            raise UsageError(f"headers: at most {EXPORT_COLUMNS_MAX} headers can be columns")

    @property
    def is_list(self) -> bool:
        """Whether it is the default."""
        return self.form == LIST

    @property
    def text(self) -> str:
        """As it is given on the command line."""
        return f"{self.form}:{','.join(self.names)}" if self.names else self.form


HEADER_LIST = HeaderForm()
