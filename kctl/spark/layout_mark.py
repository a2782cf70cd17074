"""Which kind of export a target has, so that one with other options is refused."""

from __future__ import annotations

from kctl.errors import UsageError
from kctl.spark import layout
from kctl.spark.exec.files import Files

PARQUET_MARK = "--table parquet"


class LayoutMark:
    """The options that each export into the target must have, as a file of the target."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def check(self, mark: str) -> None:
        """Raises UsageError if the target has an export with other options."""
        held = self.held()
        if held and held != mark:
            raise UsageError(
                f"{self._files.location} contains an export with {held}: use the same options or another --to"
            )

    def claim(self, mark: str) -> None:
        """Marks a new target."""
        self._files.create(layout.TABLE_MARK, mark.encode())
        self.check(mark)

    def held(self) -> str:
        """The options of the export that the target has; empty if it has none."""
        try:
            return self._files.read(layout.TABLE_MARK).decode(errors="replace")
        except FileNotFoundError:
            is_folder = bool(self._files.names(layout.PLANS) or self._files.names(layout.COMMITS))
            return PARQUET_MARK if is_folder else ""
