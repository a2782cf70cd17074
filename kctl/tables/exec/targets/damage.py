"""Errors of pyarrow for damaged Parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa


@contextlib.contextmanager
def damage_as_arrow_error() -> Iterator[None]:
    """Raise pyarrow.ArrowInvalid, with one line, for all errors of damaged files.

    For damaged footers and pages pyarrow also raises OSError, without a number, and UnicodeDecodeError.
    """
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _in_one_line(error) from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        raise _in_one_line(error) from error


def _in_one_line(error: Exception) -> pa.ArrowInvalid:
    return pa.ArrowInvalid((str(error).splitlines() or [type(error).__name__])[0].strip())
