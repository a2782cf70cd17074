"""Folders and object stores: the operations of the port, and exports with crashes and competitors at each step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from kctl.errors import KctlError, UsageError
from kctl.tables.commits.commit_log import BrokenExportFolder, CommitLog, LostRace
from kctl.tables.exec.targets.files import DiskFiles, Files, PathOutsideTarget, StoreFailed
from kctl.tables.exec.targets.object_files import ObjectFiles
from kctl.tables.exec.targets.target import open_files
from kctl.tables.exports.export import Listener
from kctl.tables.formats.kinds import TableKind, TableOptions
from tests.peers import s3_server
from tests.unit.spark.crashing_files import Crash
from tests.unit.spark.scene import Cluster, expected_values, exporter, run
from tests.unit.spark.stepped_port import SteppedPort, crashing

SILENT = Listener(lambda plan, again: None, lambda progress: None)
MakeFiles = Callable[[str], Files]


ON_S3 = pytest.param("s3", marks=pytest.mark.server)


@pytest.fixture(params=["disk", "memory", ON_S3])
def make_files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeFiles:
    """Makes the files of a target by its name, an empty one for a new name."""
    if request.param == "disk":
        return lambda name: DiskFiles(tmp_path / name)
    if request.param == "memory":
        return memory_targets()
    s3_server.set_variables(monkeypatch, request.getfixturevalue("s3_url"))
    return lambda name: open_files(f"s3://{s3_server.BUCKET}/{tmp_path.name}/{name}")


def memory_targets() -> MakeFiles:
    """Targets in the memory of the process, with the semantics of an object store."""
    from obstore.store import MemoryStore  # noqa: PLC0415

    stores: dict[str, MemoryStore] = {}
    return lambda name: ObjectFiles(f"s3://lake/{name}", store=stores.setdefault(name, MemoryStore()))


def filled() -> Cluster:
    cluster = Cluster()
    cluster.append(0, 12)
    cluster.append(1, 7)
    return cluster


def values(files: Files) -> list[bytes]:
    """All values as read by a reader that globs, sorted."""
    found = []
    for name in files.names("orders"):
        if name.endswith(".parquet") and not name.startswith("."):
            with files.open(f"orders/{name}") as file:
                found += pq.read_table(file).column("value").to_pylist()
    return sorted(found)


def assert_exact(cluster: Cluster, files: Files) -> None:
    assert values(files) == expected_values(cluster)
    assert CommitLog(files).data_files(["orders"]).keys() == CommitLog(files).committed_paths().keys()


OUTSIDE = ["../a", "/a", "a/../../b", "..", ".", "a/..", "a/./b", "a\0b", "file:///a"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_operation_leaves_the_target(make_files: MakeFiles, tmp_path: Path, path: str) -> None:
    files = make_files("target")
    files.create("inside", b"1")
    before = sorted(tmp_path.rglob("*"))
    inside = files.scratch("b")
    inside.write_bytes(b"2")
    attempts: list[Callable[[], object]] = [
        lambda: files.prepare([path]) if isinstance(files, DiskFiles) else files.names(path),
        lambda: files.names(path),
        lambda: files.sizes(path),
        lambda: files.size(path),
        lambda: files.read(path),
        lambda: files.open(path),
        lambda: files.create(path, b"2"),
        lambda: files.scratch(path),
        lambda: files.publish(inside, path),
        lambda: files.remove(path),
        lambda: files.remove_scratch([path]) if isinstance(files, DiskFiles) else files.names(path),
    ]
    for attempt in attempts:
        with pytest.raises(PathOutsideTarget, match="is not in"):
            attempt()
    files.discard(inside)
    assert sorted(tmp_path.rglob("*")) == before
    assert files.names("") == ["inside"]


def test_nothing_is_written_through_a_link_that_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("do not touch")
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link-to-target").symlink_to(target)
    (target / "orders").symlink_to(tmp_path / "other")
    (target / "real").mkdir()
    (target / "inner").symlink_to(target / "real")
    files = DiskFiles(tmp_path / "link-to-target")
    for attempt in (
        lambda: files.create("orders/new", b""),
        lambda: files.create("orders/deeper/new", b""),
        lambda: files.scratch("orders/new"),
        lambda: files.prepare(["orders/new"]),
        lambda: files.remove("orders/precious"),
    ):
        with pytest.raises(PathOutsideTarget, match="by a symbolic link"):
            attempt()
    assert files.create("inner/new", b"1")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["precious"]
    assert files.read("orders/precious") == b"do not touch"


def test_a_name_is_given_once(make_files: MakeFiles) -> None:
    files = make_files("new")
    assert files.names("") == []
    assert files.size("a/b+1.txt") is None
    with pytest.raises(FileNotFoundError):
        files.read("a/b+1.txt")
    assert files.create("a/b+1.txt", b"first")
    assert not files.create("a/b+1.txt", b"second")
    scratch = files.scratch("a/b+1.txt")
    scratch.write_bytes(b"third")
    assert not files.publish(scratch, "a/b+1.txt")
    assert files.read("a/b+1.txt") == b"first"
    assert (files.names(""), files.names("a")) == (["a"], ["b+1.txt"])


def test_a_scratch_file_is_published_with_its_contents(make_files: MakeFiles) -> None:
    files = make_files("new")
    for path, content in (("a/large", b"0123456789" * 100_000), ("a/empty", b"")):
        scratch = files.scratch(path)
        scratch.write_bytes(content)
        assert files.publish(scratch, path)
        assert files.size(path) == len(content)
        assert files.read(path) == content
    with files.open("a/large") as file:
        file.seek(-3, 2)
        assert file.read() == b"789"
        file.seek(10)
        assert file.read(3) == b"012"
    abandoned = files.scratch("a/abandoned")
    abandoned.write_bytes(b"half")
    files.discard(abandoned)
    files.remove("a/empty")
    files.remove("a/empty")
    assert files.names("a") == ["large"]


def test_increments_add_up_to_everything(make_files: MakeFiles, tmp_path: Path) -> None:
    cluster = filled()
    for count in (0, 3, 10):
        cluster.append(0, count)
        run(cluster, tmp_path, files=make_files("lake"))
        assert_exact(cluster, make_files("lake"))
    assert run(cluster, tmp_path, files=make_files("lake")).batches == []


@pytest.mark.long
@pytest.mark.parametrize("make_files", ["disk", "memory"], indirect=True)
def test_a_crash_at_any_step_is_recovered_from_by_the_next_run(make_files: MakeFiles, tmp_path: Path) -> None:
    steps = _crash_at_each(make_files, tmp_path, itertools.count(1))
    assert steps > 10


@pytest.mark.long
@pytest.mark.parametrize("make_files", [ON_S3], indirect=True)
def test_crashes_are_recovered_from_on_an_s3_server(make_files: MakeFiles, tmp_path: Path) -> None:
    _crash_at_each(make_files, tmp_path, [2, 3, 5, 6, 8, 9, 10])


def _crash_at_each(make_files: MakeFiles, tmp_path: Path, steps: Iterator[int] | list[int]) -> int:
    """Crashes in the second batch at the given steps until one is not reached; returns that step."""
    for step in steps:
        files = make_files(f"lake-{step}")
        cluster = filled()
        run(cluster, tmp_path, files=files)
        cluster.append(0, 6)
        cluster.append(1, 11)
        try:
            exporter(cluster, tmp_path, files=crashing(files, step)).run(SILENT)
        except Crash:
            pass
        else:
            return step
        cluster.append(1, 4)
        run(cluster, tmp_path, files=files)
        assert_exact(cluster, files)
    return 0


@pytest.mark.long
@pytest.mark.parametrize("make_files", ["disk", "memory"], indirect=True)
@pytest.mark.parametrize("has_commit", [True, False])
def test_of_two_exporters_at_once_one_commits(make_files: MakeFiles, tmp_path: Path, has_commit: bool) -> None:
    """The second exporter runs completely while the first is at its n-th step, for every n."""
    for step in itertools.count(1):
        files = make_files(f"lake-{step}")
        cluster = filled()
        if has_commit:
            run(cluster, tmp_path, files=files)
            cluster.append(0, 9)
        if not _run_two(cluster, files, tmp_path, step):
            break
    assert step > 7


@pytest.mark.parametrize("make_files", [ON_S3], indirect=True)
def test_of_two_exporters_at_once_one_commits_on_an_s3_server(make_files: MakeFiles, tmp_path: Path) -> None:
    for step in (2, 3, 6, 9):
        assert _run_two(filled(), make_files(f"lake-{step}"), tmp_path, step)


def _run_two(cluster: Cluster, files: Files, tmp_path: Path, step: int) -> bool:
    """Whether the first exporter reached the step at which the second one ran."""
    runs = []

    def compete(at: int) -> None:
        if at == step:
            runs.append(at)
            cluster.append(1, 2)
            exporter(cluster, tmp_path, files=files).run(SILENT)

    with contextlib.suppress(KctlError):
        exporter(cluster, tmp_path, files=SteppedPort(files, compete)).run(SILENT)
    run(cluster, tmp_path, files=files)
    assert_exact(cluster, files)
    return bool(runs)


def test_a_publication_whose_response_was_lost_is_not_a_lost_race() -> None:
    """A client repeats a request whose response is lost; the store then refuses to create the object again."""
    files = memory_targets()("lake")
    cluster = filled()

    class ForgetfulStore(SteppedPort):
        def create(self, path: str, data: bytes) -> bool:
            files.create(path, data)
            return False

    forgetful = ForgetfulStore(files, lambda step: None)
    exporter(cluster, Path("lake"), files=forgetful).run(SILENT)
    assert_exact(cluster, files)
    plan, _, _ = exporter(cluster, Path("other"), files=memory_targets()("other")).plan()
    assert plan is not None
    with pytest.raises(LostRace):
        CommitLog(files).write_plan(replace(plan, created_ms=0))


def test_a_store_that_overwrites_is_refused_before_anything_is_planned(tmp_path: Path) -> None:
    class Overwriting(ObjectFiles):
        def create(self, path: str, data: bytes) -> bool:
            return True

    from obstore.store import MemoryStore  # noqa: PLC0415

    files = Overwriting("s3://lake/orders", store=MemoryStore())
    with pytest.raises(StoreFailed, match="If-None-Match"):
        run(filled(), tmp_path, files=files)
    assert files.names("") == []


@pytest.mark.server
def test_a_file_beyond_one_request_is_uploaded_in_parts(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.set_variables(monkeypatch, s3_url)
    files = ObjectFiles(f"s3://{s3_server.BUCKET}/parts", one_request_bytes_max=6_000_000)
    for is_first in (True, False):
        scratch = files.scratch("large")
        scratch.write_bytes(bytes(11_000_000))
        assert files.publish(scratch, "large") is is_first
    assert files.size("large") == 11_000_000


@pytest.mark.server
def test_credentials_may_stand_in_a_profile(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.set_variables(monkeypatch, s3_url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[shop]\naws_access_key_id = k\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "shop")
    assert open_files(f"s3://{s3_server.BUCKET}/profile").names("") == []
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (tmp_path / "config").write_text(f"[profile shop]\nregion = eu-central-1\nendpoint_url = {s3_url}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert open_files(f"s3://{s3_server.BUCKET}/profile").names("") == []
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(StoreFailed, match="missing"):
        open_files(f"s3://{s3_server.BUCKET}/profile")


@pytest.mark.server
def test_a_bucket_that_does_not_exist_is_named(s3_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    s3_server.set_variables(monkeypatch, s3_url)
    with pytest.raises(StoreFailed, match=r"s3://no-such-bucket/orders.*404") as raised:
        run(filled(), tmp_path, files=open_files("s3://no-such-bucket/orders"))
    assert "\n" not in str(raised.value)


@pytest.mark.server
@pytest.mark.parametrize("kind", [TableKind.DELTA, TableKind.ICEBERG])
def test_tables_on_an_s3_server_survive_crashes_and_competitors(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableKind
) -> None:
    s3_server.set_variables(monkeypatch, s3_url)
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__S3__ENDPOINT", s3_url)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # read when pyiceberg was imported
    target = f"s3://{s3_server.BUCKET}/{kind}-tables"
    table = TableOptions(kind=kind, catalog="shop" if kind is TableKind.ICEBERG else None)
    cluster = filled()
    run(cluster, tmp_path, files=open_files(target), table=table)
    for step in (2, 4, 6):
        cluster.append(0, 6)
        with pytest.raises(Crash):
            exporter(cluster, tmp_path, files=crashing(open_files(target), step), table=table).run(SILENT)
        cluster.append(1, 3)

        def compete(*_: object) -> None:
            cluster.append(0, 1)
            exporter(cluster, tmp_path, files=open_files(target), table=table).run(SILENT)

        with pytest.raises(LostRace):
            exporter(cluster, tmp_path, files=open_files(target), table=table).run(
                Listener(compete, lambda progress: None)
            )
    files = open_files(target)
    assert _values_in_table(target, kind) == expected_values(cluster)
    assert files.names("orders/data") == [f"{batch:012d}" for batch in range(4)]


@pytest.mark.server
def test_a_table_on_an_s3_server_that_lost_its_metadata_keeps_its_files(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.set_variables(monkeypatch, s3_url)
    table = TableOptions(kind=TableKind.DELTA)
    cluster = filled()
    files = open_files(f"s3://{s3_server.BUCKET}/lost-metadata")
    run(cluster, tmp_path, files=files, table=table)

    def lose_metadata() -> None:
        for name in files.names("orders/_delta_log"):
            files.remove(f"orders/_delta_log/{name}")

    lose_metadata()
    cluster.append(0, 3)
    run(cluster, tmp_path, files=files, table=table)
    assert _values_in_table(files.location, TableKind.DELTA) == expected_values(cluster)
    lose_metadata()
    published = [files.names(f"orders/data/{batch:012d}") for batch in range(2)]
    with pytest.raises(BrokenExportFolder, match=r"batch 1 was published.*_delta_log.*restore the newest"):
        run(cluster, tmp_path, files=files, table=table)
    assert [files.names(f"orders/data/{batch:012d}") for batch in range(2)] == published


def _values_in_table(target: str, kind: TableKind) -> list[bytes]:
    if kind is TableKind.DELTA:
        from deltalake import DeltaTable  # noqa: PLC0415

        table = DeltaTable(f"{target}/orders", storage_options={"allow_http": "true"}).to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415

        with contextlib.closing(load_catalog("shop")) as catalog:
            table = catalog.load_table("kafka.orders").scan().to_arrow()
    return sorted(table.column("value").to_pylist())


def test_iceberg_in_an_object_store_needs_a_catalogue(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--catalog"):
        run(filled(), tmp_path, files=memory_targets()("lake"), table=TableOptions(kind=TableKind.ICEBERG))
    table = TableOptions(kind=TableKind.ICEBERG, catalog="no-such-catalogue")
    with pytest.raises(UsageError, match="no-such-catalogue"):
        run(filled(), tmp_path, files=memory_targets()("lake"), table=table)
