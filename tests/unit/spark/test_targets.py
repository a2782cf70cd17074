"""Targets that cannot be written, and disks that are full."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kctl.errors import KctlError, UsageError
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exec.targets.target import parse_target
from tests.unit.spark.scene import assert_exact, filled, run


@pytest.mark.parametrize("below", ["", "/lake"])
def test_a_file_is_no_target(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=f"{file} is not a folder"):
        parse_target(f"{file}{below}")
    assert parse_target(str(tmp_path / "new" / "lake")) == str(tmp_path / "new" / "lake")


class FullDisk(DiskFiles):
    """A disk on which data files do not fit."""

    def publish(self, scratch: Path, path: str) -> bool:
        if path.endswith(".parquet"):
            raise OSError(errno.ENOSPC, "Error writing bytes to file")  # pyarrow's text
        return super().publish(scratch, path)


def test_a_full_disk_is_named_with_the_file_and_the_next_run_completes_the_export(tmp_path: Path) -> None:
    cluster = filled()
    with pytest.raises(KctlError, match=rf"^{tmp_path}/orders/orders[^ ]*: No space left on device"):
        run(cluster, tmp_path, files=FullDisk(tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)
