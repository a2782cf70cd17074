"""Names in an export folder."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kctl.tables.commits.layout import (
    NamedRange,
    batch_name,
    batch_number,
    data_path,
    is_data_file,
    is_file_of,
    topic_directories,
    topic_directory,
)
from kctl.tables.exec.selection.partitioning import Partitioning
from kctl.tables.exec.targets.files import DiskFiles


def test_a_data_file_is_named_after_its_range() -> None:
    path = data_path("orders", [NamedRange(3, 51200, 102400)])
    assert path == "orders/orders+3+00000000000000051200-00000000000000102400.parquet"


def test_scratch_files_are_hidden_from_readers_of_folders(tmp_path: Path) -> None:
    path = "orders/" + data_path("orders", [NamedRange(3, 0, 10)]).rpartition("/")[2]
    scratch = DiskFiles(tmp_path).scratch(path)
    assert scratch.parent == tmp_path / "orders"
    assert scratch.name.startswith(".")
    assert not is_data_file(scratch.name)
    assert is_data_file(Path(path).name)


def test_topics_that_readers_of_folders_would_skip_get_a_plus() -> None:
    assert topic_directory("__consumer_offsets") == "+__consumer_offsets"
    assert topic_directory(".hidden") == "+.hidden"
    path = data_path("_schemas", [NamedRange(0, 0, 1)])
    assert not any(part.startswith(("_", ".")) for part in path.split("/"))


def test_names_differ_by_incarnation() -> None:
    names = {data_path("orders", [NamedRange(0, 0, 9)], incarnation=n) for n in range(3)}
    assert len(names) == 3


def test_batch_numbers_are_read_back_and_other_files_ignored() -> None:
    assert batch_number(batch_name(7)) == 7
    assert batch_number("_SUCCESS") is None
    assert batch_number(".000000000007.json.abc.tmp") is None
    assert batch_number("000000000007.json.tmp") is None


def test_all_names_of_the_longest_topics_fit_into_a_file_system(tmp_path: Path) -> None:
    longest = 249
    topics = ["n" * longest, "n" * (longest - 1) + "m", "_" * longest]
    paths = [
        data_path(topic, [NamedRange(999_999, 0, 10**18)], topic_id=UUID(int=1), incarnation=incarnation)
        for topic in topics
        for incarnation in (0, 1000)
    ]
    assert len({path.rpartition("/")[2] for path in paths}) == len(paths)
    files = DiskFiles(tmp_path)
    for path in paths:
        in_table = Partitioning("country").path_in_table(path.replace(".parquet", "+p01234567.parquet"), ("DE",))
        for name in (path, in_table, f"{path}.json"):
            assert files.create(name, b"x")


@pytest.mark.parametrize("topic", ["n" * 100, "n" * 101, "_" * 249])
def test_files_and_folders_of_a_topic_are_recognised_by_their_names(topic: str) -> None:
    id_ = UUID(int=1)
    first, later = (topic_directory(topic, topic_id=id_, incarnation=number) for number in range(2))
    uncut = f"{topic_directory(topic)}+r1"
    assert topic_directories(topic, [first, later, uncut, f"{first}x", f"x{first}"]) == sorted([first, later, uncut])
    assert is_file_of(data_path(topic, [NamedRange(0, 0, 1)], topic_id=id_, incarnation=1), topic)
    assert is_file_of(f"data/{topic_directory(topic)}+0+1-2.parquet", topic)
    assert not is_file_of(data_path(f"{topic[:-1]}x", [NamedRange(0, 0, 1)]), topic)
