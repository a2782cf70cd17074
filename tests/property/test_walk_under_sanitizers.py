"""The compiled modules of kctl.records under AddressSanitizer and UndefinedBehaviorSanitizer.

Their C code is built with the sanitizers into a temporary folder and compared with the interpreted source on the same
inputs.  Where gcc has no sanitizers the tests are skipped with what to install, which fails with CI=true.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.peers import sanitizers
from tests.property import fuzz_compiled
from tests.property.examples import share_of

SEED, COUNT = 20, share_of(6_000)
FUZZED_S = "4"

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of the modules, and the words that name them."""
    folder = tmp_path_factory.mktemp("sanitized")
    return folder, fuzz_compiled.build(folder)


@pytest.mark.long
def test_compiled_modules_read_nothing_outside_of_their_buffers_and_refuse_the_same(
    built: tuple[Path, list[str]],
) -> None:
    folder, words = built
    ran = sanitizers.run(folder, ["-m", "tests.property.walk_inputs", str(SEED), str(COUNT), *words])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    found = re.fullmatch(r"(\d+) inputs, (\d+) accepted\n", ran.stdout)
    assert found is not None
    assert (int(found[1]), int(found[2]) >= COUNT // 3) == (COUNT, True)


@pytest.mark.long
def test_inputs_that_reach_more_of_the_compiled_code_are_read_and_refused_the_same(
    built: tuple[Path, list[str]],
) -> None:
    folder, words = built
    current = folder / "current"
    ran = sanitizers.run(folder, ["-m", "tests.property.guided_fuzz", FUZZED_S, str(SEED), str(current), *words])
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}\n{current.read_text()}"
    found = re.fullmatch(r"(\d+) inputs, (\d+) kept\n", ran.stdout)
    assert found is not None
    assert int(found[2]) > 50, "no input has reached more than the first ones"


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
