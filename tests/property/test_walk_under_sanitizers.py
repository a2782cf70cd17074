"""The compiled record walk and key table under AddressSanitizer and UndefinedBehaviorSanitizer.

Their C code is built with the sanitizers into a temporary folder and compared with the interpreted source on the same
inputs.  Where gcc has no sanitizers the tests are skipped with what to install, which fails with CI=true.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import kctl.records
from tests.peers import sanitizers

SOURCES = [Path(kctl.records.__file__).with_name(name) for name in ("walk.py", "key_table.py")]
SEED, COUNT = 20, 20_000

WALK = """
from mypyc.build import mypycify
from setuptools import setup
modules = []
for name in ("sanitized_walk", "sanitized_key_table"):
    modules += mypycify([f"{name}.py"], opt_level="1", debug_level="1", target_dir=f"build/{name}")
setup(name="walk", ext_modules=modules)
"""
READS_TOO_FAR = r"""
#include <Python.h>
static PyObject *read_at(PyObject *module, PyObject *arguments) {
    Py_buffer buffer; Py_ssize_t at;
    if (!PyArg_ParseTuple(arguments, "y*n", &buffer, &at)) return NULL;
    return PyLong_FromLong(((volatile unsigned char *)buffer.buf)[at]);
}
static PyObject *add(PyObject *module, PyObject *arguments) {
    int first, second;
    if (!PyArg_ParseTuple(arguments, "ii", &first, &second)) return NULL;
    return PyLong_FromLong(first + second);
}
static PyMethodDef methods[] = {
    {"read_at", read_at, METH_VARARGS, ""}, {"add", add, METH_VARARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "faulty", "", -1, methods};
PyMODINIT_FUNC PyInit_faulty(void) { return PyModule_Create(&definition); }
"""
FAULTY = """
from setuptools import Extension, setup
setup(name="faulty", ext_modules=[Extension("faulty", ["faulty.c"])])
"""


@pytest.fixture(autouse=True)
def _needs_sanitizers() -> None:
    if reason := sanitizers.why_not():
        pytest.skip(reason)


def test_walk_reads_nothing_outside_of_its_buffer_and_refuses_the_same(tmp_path: Path) -> None:
    for source in SOURCES:
        shutil.copy(source, tmp_path / f"sanitized_{source.name}")
    sanitizers.build(tmp_path, WALK)
    arguments: list[str] = []
    for source in SOURCES:
        (tmp_path / f"sanitized_{source.name}").rename(tmp_path / source.name)  # Only the compiled module has the name.
        arguments += [f"sanitized_{source.stem}", str(tmp_path / source.name)]
    arguments += [str(SEED), str(COUNT)]
    ran = sanitizers.run(tmp_path, ["-m", "tests.property.walk_inputs", *arguments])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    found = re.fullmatch(r"(\d+) inputs, (\d+) accepted\n", ran.stdout)
    assert found is not None
    assert (int(found[1]), int(found[2]) >= COUNT // 3) == (COUNT, True)


def test_sanitizers_detect_what_the_walk_must_not_do(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    (tmp_path / "faulty.c").write_text(READS_TOO_FAR)
    sanitizers.build(tmp_path, FAULTY)
    for call, message in (
        ("read_at(bytes(70), 71)", "heap-buffer-overflow"),  # The byte behind the bytes is their terminator.
        ("add(2**31 - 1, 1)", "signed integer overflow"),
    ):
        ran = sanitizers.run(tmp_path, ["-c", f"import faulty; faulty.{call}"])
        assert ran.returncode != 0
        assert message in ran.stderr
    ran = sanitizers.run(tmp_path, ["-c", "import faulty; faulty.read_at(bytes(70), 69); faulty.add(1, 1)"])
    assert (ran.returncode, ran.stderr) == (0, "")
