"""Compiled functions free their arguments: a cleaner passes them 8 bytes for each record that it compacts."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from librt.vecs import vec
from mypy_extensions import i32, u8

import kctl.records.compiled
from kctl.records.compiled.key_table import SECRET_SIZE, KeyTable
from kctl.records.compiled.walk import retain_records
from kctl.system.operating_system import resident_bytes

COMPILED = sorted(Path(kctl.records.compiled.__file__).parent.glob("[a-z]*.py"))
ARGUMENT_BYTES = 4_000_000
CALLS = 40


def add() -> None:
    table().add(b"", vec[i32]([-1] * (ARGUMENT_BYTES // 4)))


def are_unknown() -> None:
    table().are_unknown(b"", vec[i32]([-1] * (ARGUMENT_BYTES // 4)))


def retain() -> None:
    with pytest.raises(IndexError):  # The region has no records.
        retain_records(b"", 0, vec[u8]([1] * ARGUMENT_BYTES), drops_tombstones=False)


def table() -> KeyTable:
    return KeyTable(bytes(SECRET_SIZE), bytes)


@pytest.mark.long
@pytest.mark.parametrize("call", [add, are_unknown, retain])
def test_arguments_of_compiled_functions_are_freed(call: Callable[[], None]) -> None:
    call()
    before = resident_bytes()
    if before is None:
        pytest.skip("this system does not count the memory of a process")
    for _ in range(CALLS):
        call()
    assert (resident_bytes() or 0) - before < CALLS * ARGUMENT_BYTES // 4


def test_functions_that_interpreted_code_calls_take_no_vec() -> None:
    """mypyc 2.4 increments the reference count of such an argument, and never decrements it."""
    assert COMPILED
    found = [
        f"{path.name}: {function.name}"
        for path in COMPILED
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.annotation is not None and "vec[" in ast.unparse(argument.annotation)
    ]
    assert found == []
