"""The compiled modules of kctl.records under AddressSanitizer and UndefinedBehaviorSanitizer.

Their C code is built with the sanitizers into a temporary folder and compared with the interpreted source on the same
inputs.  Where gcc has no sanitizers the tests are skipped with what to install, which fails with CI=true.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kctl.records.compiled
from tests.peers import sanitizers
from tests.property import walk_inputs
from tests.property.examples import share_of

SOURCES = [Path(kctl.records.compiled.__file__).with_name(f"{name}.py") for name in walk_inputs.COMPARED]
SEED, COUNT = 20, share_of(12_000)

WALK = """
from mypyc.build import mypycify
from setuptools import setup
names = ("walk", "key_table", "encoding", "record_lines", "record_rows", "frame", "produce_frame", "fetch_frame",
         "key_hash")
paths = [f"sanitized_{name}.py" for name in names]
setup(name="walk", ext_modules=mypycify(paths, opt_level="0", debug_level="1", group_name="sanitized"))
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


@pytest.mark.long
def test_compiled_modules_read_nothing_outside_of_their_buffers_and_refuse_the_same(tmp_path: Path) -> None:
    for source in SOURCES:
        text = re.sub(
            r"from kctl\.records\.compiled\.(walk|record_lines|frame) import",
            r"from sanitized_\1 import",
            source.read_text(),
        )
        (tmp_path / f"sanitized_{source.name}").write_text(text)
    sanitizers.build(tmp_path, WALK)
    arguments = [str(SEED), str(COUNT)]
    for source in SOURCES:
        (tmp_path / f"sanitized_{source.name}").unlink()  # Only the compiled module has the name.
        arguments += [f"sanitized_{source.stem}", str(source)]
    ran = sanitizers.run(tmp_path, ["-m", "tests.property.walk_inputs", *arguments])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    found = re.fullmatch(r"(\d+) inputs, (\d+) accepted\n", ran.stdout)
    assert found is not None
    assert (int(found[1]), int(found[2]) >= COUNT // 3) == (COUNT, True)


@pytest.mark.long
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
