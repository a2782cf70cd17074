"""Names in an export folder."""

from __future__ import annotations

from pathlib import Path

from kctl.spark.exec.files import DiskFiles
from kctl.spark.layout import NamedRange, batch_name, batch_number, data_path, is_data_file, topic_directory


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
