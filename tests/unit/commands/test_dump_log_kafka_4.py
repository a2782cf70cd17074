"""Internal logs of Apache Kafka 4.3.1 (tests/golden/storage/kafka-4.3.1) are shown as by Kafka's own tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

FILES = Path(__file__).parent.parent.parent / "golden" / "storage" / "kafka-4.3.1"
DECODERS = {
    "__cluster_metadata-0": "--cluster-metadata-decoder",
    "__consumer_offsets-0": "--offsets-decoder",
    "__remote_log_metadata-0": "--remote-log-metadata-decoder",
    "__share_group_state-0": "--share-group-state-decoder",
    "": "--cluster-metadata-decoder",
}
PRINTED = sorted(str(path.relative_to(FILES)) for path in FILES.rglob("*.txt"))


def file_of(printed: str) -> str:
    return printed.removesuffix(".txt").replace("dumped-", "")


def decoder_of(file: str) -> str:
    return DECODERS[file.rpartition("/")[0]]


@for_rows("printed", PRINTED)
def test_classic_text_of_files_of_kafka_4_is_kafkas(kctl: Kctl, monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
    monkeypatch.chdir(FILES)
    file = file_of(printed)
    run = kctl("dump-log", "--compat", "kafka-4", decoder_of(file), "--files", file)
    assert (run.status, run.err) == (0, "")
    assert run.out.splitlines() == (FILES / printed).read_text().splitlines()


@pytest.mark.parametrize(
    ("folder", "only_in_4", "in_3"),
    [
        ("__remote_log_metadata-0", ", txnIdxEmpty=false", ""),
        (
            "__cluster_metadata-0",
            'LeaderChange: {"version":0,"leaderId":0,"voters":[{"voterId":0}],"grantingVoters":[{"voterId":0}]}',
            "controlType: LEADER_CHANGE(2)",
        ),
    ],
)
def test_classic_text_of_kafka_3_differs_as_its_tool_does(
    kctl: Kctl, monkeypatch: pytest.MonkeyPatch, folder: str, only_in_4: str, in_3: str
) -> None:
    """What DumpLogSegments of 3.9.1 prints of the same files, without the fields that only 4.3.1 knows."""
    monkeypatch.chdir(FILES)
    file = f"{folder}/00000000000000000000.log"
    run = kctl("dump-log", "--compat", "kafka-3", DECODERS[folder], "--files", file)
    assert (run.status, run.err) == (0, "")
    printed_by_4 = (FILES / folder / "dumped-00000000000000000000.log.txt").read_text()
    assert only_in_4 in printed_by_4
    assert run.out == printed_by_4.replace(only_in_4, in_3).replace(", txnIdxEmpty=true", "")


@for_rows("printed", PRINTED)
def test_each_record_of_kafka_4_is_decoded(kctl: Kctl, printed: str) -> None:
    file = FILES / file_of(printed)
    decoder = decoder_of(printed)
    run = kctl("dump-log", "--format", "jsonl", decoder, str(file))
    assert run.status == 0
    rows = [json.loads(line) for line in run.out.splitlines()]
    records = [row for row in rows if row["type"] == "record" and "control" not in row]
    assert records
    assert all(isinstance(row["value"], dict) or row["value"] is None for row in records)
    assert not any(row.get("control") == "unknown" for row in rows)


def test_member_of_the_new_consumer_protocol_has_null_for_its_classic_metadata(kctl: Kctl) -> None:
    log = FILES / "__consumer_offsets-0" / "00000000000000000000.log"
    run = kctl("dump-log", "--compat", "kafka-4", "--offsets-decoder", str(log))
    members = [line for line in run.out.splitlines() if '"subscribedTopicRegex"' in line]
    assert len(members) >= 2
    assert all('"classicMemberMetadata":null' in line for line in members)


def test_folder_of_the_metadata_log_is_shown_with_its_snapshot_and_quorum_state(kctl: Kctl) -> None:
    run = kctl("dump-log", "--format", "jsonl", str(FILES / "__cluster_metadata-0"))
    assert run.status == 0
    rows = [json.loads(line) for line in run.out.splitlines()]
    assert {Path(row["file"]).suffix for row in rows} == {".log", ".checkpoint", ""}
    assert {row["name"]: row["value"] for row in rows if row["type"] == "property"}["leaderId"] == "0"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_quorum_state_that_is_no_json_object_is_a_problem(kctl: Kctl, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "quorum-state").write_bytes(content)
    run = kctl("dump-log", "--format", "jsonl", str(tmp_path / "quorum-state"))
    assert run.status == 1
    assert "not " in json.loads(run.out)["message"]


def test_decoders_of_topics_exclude_each_other(kctl: Kctl) -> None:
    run = kctl("dump-log", "--offsets-decoder", "--share-group-state-decoder", str(FILES / "bootstrap.checkpoint"))
    assert run.status == 2
    assert "--offsets-decoder and --share-group-state-decoder cannot be combined" in run.err


def test_decoders_of_newer_topics_do_not_go_with_the_text_of_kafka_2_8(kctl: Kctl) -> None:
    run = kctl("dump-log", "--compat", "kafka-2.8", "--cluster-metadata-decoder", str(FILES / "bootstrap.checkpoint"))
    assert run.status == 2
    assert "use --compat kafka-4" in run.err
