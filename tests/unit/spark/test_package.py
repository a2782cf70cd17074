"""The zip for executors holds all that tasks import, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from kctl.spark.package import build_package


def test_tasks_run_from_the_zip_alone(tmp_path: Path) -> None:
    package = build_package(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import kctl.spark.exec.task\n"
        "from kctl.protocol.registry import APIS\n"
        "for name in ('fetch', 'metadata', 'list_offsets', 'api_versions'):\n"
        "    next(api for api in APIS.values() if api.name == name).request\n"
        "ours = [module.__file__ for name, module in sys.modules.items() if name.split('.')[0] == 'kctl']\n"
        "assert all(file.startswith(sys.argv[1]) for file in ours), ours\n"
        "foreign = {'pyspark', 'rich', 'typer', 'kazoo'} & set(sys.modules)\n"
        "assert not foreign, foreign\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(package)], check=True, timeout=60)


def test_the_same_code_gives_the_same_zip(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = build_package(tmp_path / "a"), build_package(tmp_path / "b")
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_what_only_the_driver_needs_stays_at_home(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_package(tmp_path)).namelist()
    assert "kctl/spark/exec/decode.py" in names
    assert not [name for name in names if name.startswith(("kctl/server", "kctl/commands", "kctl/console"))]
    assert "kctl/spark/export.py" not in names
