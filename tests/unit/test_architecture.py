"""ARCHITECTURE.md against the code: the named paths exist, and the claims about imports, files and clocks hold."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.rows import for_rows

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
CODE_SPANS = [span for line in TEXT.splitlines() for span in re.findall(r"`([^`]+)`", line)]
FUNCTIONS = sorted({span for span in CODE_SPANS if re.fullmatch(r"(?!kctl\.)[a-z][a-z_]*\.(?!toml)[a-z_]+", span)})
CLASSES = sorted({span.partition("(")[0] for span in CODE_SPANS if re.fullmatch(r"([A-Z][a-z]+)+(\([a-z]*\))?", span)})
"""The names of classes in the text; names of properties and of error codes have another form."""
MODULES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "kctl").rglob("*.py"))}

OPENS_FILES_OFFLINE = {"dump.py", "dump_files.py", "dump_indexes.py", "dump_rebuild.py", "log_summary.py"}
CLOCK_READERS = {
    "kctl/server/loop/tasks.py",
    "kctl/server/loop/lag.py",
    "kctl/server/loop/slow_iterations.py",
    "kctl/server/replication/logs/cleaners.py",
    "kctl/server/process/data_folder.py",
    "kctl/server/process/dev_cluster.py",
    "kctl/server/security/sasl/json_web_keys.py",
    "kctl/storage/cleaning/worker.py",  # a process of its own, without the broker's clock
}
ENTRIES_MAX = 12
LAYERS_AND_LISTS = {
    *("kctl", "kctl/server"),  # the layers: each is a row in ARCHITECTURE.md and a name in the import contracts
    *("kctl/commands", "kctl/protocol/apis", "kctl/server/handlers"),  # one per noun, one per API
    *("kctl/client", "kctl/client/connections"),
}
FILE_FUNCTIONS = {"open", "scandir", "stat", "listdir", "remove", "unlink", "rename", "replace", "mkdir", "makedirs"}


@pytest.fixture(scope="module", autouse=True)
def _forget_nodes() -> Iterator[None]:
    """The nodes are a million objects, which each garbage collection of later tests would visit."""
    yield
    _nodes.cache_clear()


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def _class_names() -> frozenset[str]:
    """The names of all classes in all modules."""
    nodes = (node for path in MODULES.values() for node in _nodes(path))
    return frozenset(node.name for node in nodes if isinstance(node, ast.ClassDef))


def _calls(path: Path) -> Iterator[str]:
    """The dotted names of all calls in a module: `open`, `os.open`, `time.monotonic`."""
    for node in _nodes(path):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def _docstring(path: Path) -> str:
    module = _nodes(path)[0]
    assert isinstance(module, ast.Module)
    return ast.get_docstring(module) or ""


def _packages_of(module: str) -> Iterator[str]:
    """The packages that contain a module, given by their dotted names."""
    while module := module.rpartition(".")[0]:
        yield module


def _imports(path: Path) -> set[str]:
    """The top-level packages that a module imports, also inside of functions."""
    found: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _imported_modules(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, also inside of functions and for types only."""
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _importers(package: str) -> set[str]:
    return {name for name, path in MODULES.items() if package in _imports(path)}


@for_rows("path", sorted({span for span in CODE_SPANS if re.match(r"(kctl|docs|tests)/", span)}))
def test_every_path_in_the_architecture_exists(path: str) -> None:
    assert (ROOT / path).exists()


@for_rows("name", sorted(set(re.findall(r"\bkctl\.[a-z_.]+[a-z_]", TEXT))))
def test_every_dotted_module_in_the_architecture_exists(name: str) -> None:
    path = ROOT / name.replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").exists()


def test_every_package_of_the_server_is_in_the_text() -> None:
    packages = [path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "kctl/server").glob("*/__init__.py")]
    assert [package for package in packages if f"| `{package}` |" not in TEXT] == []


@for_rows("reference", FUNCTIONS)
def test_every_function_in_a_journey_exists(reference: str) -> None:
    module, _, function = reference.partition(".")
    candidates = [path for path in MODULES.values() if path.stem == module]
    assert any(re.search(rf"def {function}\b", path.read_text()) for path in candidates)


@pytest.mark.long
@for_rows("name", CLASSES)
def test_every_class_in_the_architecture_exists(name: str) -> None:
    assert name in _class_names()


def test_packages_have_few_entries() -> None:
    levels: dict[str, set[str]] = {}
    for name in MODULES:
        parts = name.removesuffix("/__init__.py").split("/")
        for depth in range(1, len(parts)):
            levels.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    crowded = {name for name, entries in levels.items() if len(entries) > ENTRIES_MAX}
    assert crowded <= LAYERS_AND_LISTS


@pytest.mark.long
def test_modules_that_call_themselves_pure_are_in_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = {
        module
        for contract in contracts
        if "asyncio" in contract.get("forbidden_modules", [])
        for module in contract["source_modules"]
    }
    claiming = [name for name, path in MODULES.items() if re.search(r"\bPure[.:]", _docstring(path))]
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in claiming]
    assert {name for name in modules if not checked.intersection((name, *_packages_of(name)))} == set()


def test_no_modules_import_each_other() -> None:
    modules = {name.removesuffix(".py").replace("/", ".") for name in MODULES}
    imports = {
        name.removesuffix(".py").replace("/", "."): modules.intersection(_imported_modules(path))
        for name, path in MODULES.items()
    }
    TopologicalSorter(imports).prepare()  # Raises CycleError.


def test_only_the_kazoo_link_imports_kazoo() -> None:
    assert _importers("kazoo") == {"kctl/zookeeper/kazoo_link.py"}


def test_only_the_spark_package_imports_spark_and_arrow() -> None:
    importers = _importers("pyspark") | _importers("pyarrow") | _importers("numpy")
    assert {name for name in importers if not name.startswith("kctl/tables/")} == set()


def test_no_memory_is_shared_with_forked_processes() -> None:
    maps = {
        name
        for name, path in MODULES.items()
        for node in _nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "mmap.mmap" and ast.unparse(node.args[0]) == "-1"
    }
    assert maps == {"kctl/system/operating_system.py"}


def test_storage_opens_files_through_the_port_except_offline_tools() -> None:
    direct = {
        path.name
        for name, path in MODULES.items()
        if name.startswith("kctl/storage/") and path.name != "files.py"
        for call in _calls(path)
        if call == "open" or (call.startswith("os.") and call.removeprefix("os.") in FILE_FUNCTIONS)
    }
    assert direct <= OPENS_FILES_OFFLINE


def test_only_the_listed_broker_modules_read_a_clock() -> None:
    packages = ("kctl/server/", "kctl/storage/", "kctl/records/")
    assert {name for name in _importers("time") if name.startswith(packages)} == CLOCK_READERS
