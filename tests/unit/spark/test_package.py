"""The zip for executors contains exactly the modules that tasks import."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.client.connections.security import ClientSecurity
from kctl.client.settings import ClientSettings
from kctl.records.compiled import walk_is_compiled
from kctl.tables.engines.job import portable, tasks_of
from kctl.tables.engines.package import build_package
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.unit.spark.scene import Cluster, exporter

pytestmark = pytest.mark.long


def test_tasks_run_from_the_zip_alone(tmp_path: Path) -> None:
    package = build_package(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import kctl.tables.exec.task\n"
        "from kctl.tables.exec.decoding import avro_values, json_values, protobuf_values\n"
        "from kctl.protocol.registry import api_named\n"
        "for name in ('fetch', 'metadata', 'list_offsets', 'api_versions'):\n"
        "    api_named(name).request\n"
        "ours = [module.__file__ for name, module in sys.modules.items() if name.split('.')[0] == 'kctl']\n"
        "name = sys.argv[1].rpartition('/')[2]\n"
        "assert all(name in file for file in ours), ours\n"
        "foreign = {'pyspark', 'rich', 'typer', 'kazoo'} & set(sys.modules)\n"
        "assert not foreign, foreign\n"
        "from kctl.records.compiled import walk_is_compiled\n"
        "assert walk_is_compiled() == (sys.argv[2] == 'True')\n"
    )
    for path in (str(package), f"./{package.name}"):  # Spark has the latter
        command = [sys.executable, "-I", "-c", code, path, str(walk_is_compiled())]
        subprocess.run(command, check=True, timeout=60, cwd=tmp_path)


def test_modules_of_the_zip_import_no_others_of_kctl(tmp_path: Path) -> None:
    """Imports within functions too, of which tasks on this machine might run none."""
    archive = zipfile.ZipFile(build_package(tmp_path))
    sources = {name: archive.read(name) for name in archive.namelist() if name.startswith("kctl/")}
    for name, source in sources.items():
        for module in imported_modules(ast.parse(source)):
            path = module.replace(".", "/")
            assert {f"{path}.py", f"{path}/__init__.py"} & sources.keys(), f"{name} imports {module}"


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """The modules of kctl that are imported, but for type checkers only."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "kctl":
            yield node.module
        waiting += ast.iter_child_nodes(node)


def test_tasks_run_without_the_package_that_the_compiled_walk_needs(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "sys.modules['librt'] = None\n"
        "import kctl.tables.exec.task\n"
        "from kctl.tables.exec.reading import locate\n"
        "assert not locate.walk_is_compiled()\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(build_package(tmp_path))], check=True, timeout=60)


def test_tasks_run_where_the_compiled_modules_of_the_zip_cannot_be_loaded(tmp_path: Path) -> None:
    package = build_package(tmp_path)
    damaged = tmp_path / f"{package.name}.native" / "records"
    damaged.mkdir(parents=True)
    for name in zipfile.ZipFile(package).namelist():
        if name.startswith("native/records/"):
            (damaged / Path(name).name).write_bytes(b"of another system")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import kctl.tables.exec.task\n"
        "from kctl.tables.exec.reading import locate\n"
        "assert not locate.walk_is_compiled()\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(package)], check=True, timeout=60)


def test_objects_sent_between_driver_and_tasks_are_importable_on_both_sides(tmp_path: Path) -> None:
    """A class of the driver's in a task would be found on this machine and on no other."""
    cluster = Cluster()
    cluster.append(0, 3)
    exporting = exporter(cluster, tmp_path)
    plan, _, _ = exporting.plan()
    assert plan is not None
    tasks = tasks_of(plan, str(tmp_path), exporting._request.client, may_skip=False)
    package = build_package(tmp_path)
    pickled = tmp_path / "tasks"
    pickled.write_bytes(pickle.dumps(tasks))
    code = (
        "import sys, pickle; sys.path.insert(0, sys.argv[1])\n"
        "tasks = pickle.load(open(sys.argv[2], 'rb'))\n"
        "assert type(tasks[0]).__module__ == 'kctl.tables.exec.file_task'\n"
        "assert type(tasks[0].compression) is str\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(package), str(pickled)], check=True, timeout=60)


def test_tasks_get_the_contents_of_key_stores(tmp_path: Path) -> None:
    """Executors on other machines do not have the files."""
    authority = CertificateAuthority.create(tmp_path)
    client = authority.issue("client")
    security = ClientSecurity.of(
        "SASL_SSL",
        {
            "ssl.truststore.location": str(authority.jks),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": str(client.pkcs12),
            "ssl.keystore.password": PASSWORD,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": 'a.ScramLoginModule required username="u" password="p";',
        },
    )
    settings = portable(ClientSettings((("127.0.0.1", 9092),), security=security))
    for path in (authority.jks, client.pkcs12):
        path.unlink()
    pickled = tmp_path / "settings"
    pickled.write_bytes(pickle.dumps(settings))
    code = (
        "import sys, pickle; sys.path.insert(0, sys.argv[1])\n"
        "security = pickle.load(open(sys.argv[2], 'rb')).security\n"
        "assert len(security.tls_context().get_ca_certs()) == 1\n"
        "assert security.sasl_client('broker', 1000) is not None\n"
    )
    subprocess.run(
        [sys.executable, "-I", "-c", code, str(build_package(tmp_path)), str(pickled)], check=True, timeout=60
    )


def test_the_same_code_gives_the_same_zip(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = build_package(tmp_path / "a"), build_package(tmp_path / "b")
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_driver_only_modules_are_not_in_the_zip(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_package(tmp_path)).namelist()
    assert "kctl/tables/exec/decoding/decode.py" in names
    assert not [name for name in names if name.startswith(("kctl/server", "kctl/commands", "kctl/output/console"))]
    assert "kctl/tables/exports/export.py" not in names
