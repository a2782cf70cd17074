"""`kctl cluster api-versions`, `features` and `cluster quorum`, on clusters with ZooKeeper and with KRaft."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.admin.cluster.features import metadata_version_name
from tests.integration.cli.conftest import KAFKA_4, Kctl
from tests.integration.cli.test_kafka_tool_output import output
from tests.peers import apache_kafka

ON_KAFKA_4 = pytest.mark.parametrize("bootstrap", [KAFKA_4], indirect=True)
ELR = "eligible.leader.replicas.version"


def test_api_versions_of_a_broker(kctl: Kctl) -> None:
    ran = kctl("cluster api-versions --format json")
    assert ran.status == 0
    apis = {row["api"]: row for row in ran.document}
    fetch = apis["Fetch"]
    (broker,) = fetch["brokers"]
    assert broker["min"] <= fetch["usable"] == min(broker["max"], fetch["kctl_max"]) <= broker["max"]
    assert not any(row["differs"] for row in ran.document)
    assert kctl("cluster api-versions --differing").out == ""
    assert ["1", "Fetch", f"{broker['min']}-{broker['max']}", "0-12", str(fetch["usable"]), "-"] in kctl(
        "cluster api-versions"
    ).rows


def test_cluster_on_zookeeper_has_no_quorum_and_only_features_of_kctl(
    kctl: Kctl, bootstrap: str, broker_of: Callable[[str], str]
) -> None:
    ran = kctl("cluster quorum --format json")
    assert (ran.status, ran.document["error"]["code"]) == (1, "UNSUPPORTED_VERSION")
    assert "its metadata is in ZooKeeper" in ran.document["error"]["message"]
    described = kctl("features describe")
    is_ours = bootstrap == broker_of("kctl")
    assert (described.status, [row[0] for row in described.rows]) == (0, ["transaction.version"] if is_ours else [])
    ran = kctl("features upgrade --metadata-version 3.9 --yes")
    assert ran.status == 1
    assert ran.rows[0][4] in {"INVALID_REQUEST", "INVALID_UPDATE_VERSION"}


@ON_KAFKA_4
def test_no_api_of_kafka_4_is_unknown(kctl: Kctl) -> None:
    assert not [row for row in kctl("cluster api-versions").rows if row[1].startswith("unknown")]


@ON_KAFKA_4
def test_features_are_those_of_kafkas_tool(kctl: Kctl, bootstrap: str) -> None:
    tools = [
        ["org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap, "describe"],
        ["org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status"],
    ]
    described, status = output(apache_kafka.TOOLS_FOR_NEWEST, tools)
    rows = {row["feature"]: row for row in kctl("features describe --format json").document}
    pattern = r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
    theirs = re.findall(pattern, described)
    assert sorted(name for name, *_ in theirs) == sorted(rows)
    for name, low, high, level in theirs:
        levels = [rows[name][key] for key in ("supported_min", "supported_max", "finalized")]
        text = metadata_version_name if name == "metadata.version" else str
        assert [low, high, level] == [text(level) for level in levels]
    quorum = kctl("cluster quorum --format json").document
    assert f"LeaderId:               {quorum['leader_id']}\n" in status
    assert f"LeaderEpoch:            {quorum['leader_epoch']}\n" in status
    assert (quorum["max_follower_lag"], quorum["voters"]) == (0, [0])
    (leader,) = kctl("cluster quorum --replication --format json").document
    assert (leader["node"], leader["role"], leader["lag"]) == (0, "Leader", 0)
    assert f'"endpoints": ["{leader["endpoints"][0]}"]' in status


GOLDEN = Path(__file__).parents[2] / "golden" / "output" / "kafka-4"
LINES = {
    "features-describe": "features describe",
    "features-downgrade": "features downgrade --feature eligible.leader.replicas.version=0 --dry-run",
    "metadata-quorum-describe": "cluster quorum",
    "metadata-quorum-replication": "cluster quorum --replication",
}


@ON_KAFKA_4
@pytest.mark.parametrize("name", LINES)
def test_output_on_a_kraft_cluster_is_as_ever(kctl: Kctl, name: str) -> None:
    """Golden files; KCTL_WRITE_GOLDEN=1 writes them.  Ids, and of the quorum all numbers, differ between runs."""
    pieces = []
    for format_ in ("table", "plain", "json", "jsonl", "yaml", "csv"):
        ran = kctl(f"{LINES[name]} --format {format_}")
        pieces.append(f"$ kctl {LINES[name]} --format {format_}\n{ran.out}{ran.err}exit status {ran.status}\n\n")
    text = masked("".join(pieces), with_numbers="quorum" in name)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("KCTL_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text.split("\n") == file.read_text().split("\n"), "look at the difference; KCTL_WRITE_GOLDEN=1 accepts it"


def masked(text: str, *, with_numbers: bool) -> str:
    """Without ids, epochs and other numbers, and the blanks that align them."""
    text = re.sub(r" {2,}", "  ", text.replace("\r\n", "\n"))
    text = re.sub(r"(?<![\w-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z\d])[\w-]{22}(?![\w-])", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    if with_numbers:
        return re.sub(r"(?<![\w.-])(?<!exit status )\d+(?![\w.-])", "N", text)
    text = re.sub(r'("?epoch"?: ?)\d+', r"\1N", text)
    return re.sub(r"([\t, ])\d+([\t, ]+(?:false|true))", r"\1N\2", text)


@ON_KAFKA_4
def test_features_are_downgraded_and_upgraded(kctl: Kctl) -> None:
    before = level(kctl)
    assert before == 1
    line = f"--feature {ELR}"
    assert kctl(f"features downgrade {line}=0 --dry-run").rows == [[ELR, "1", "0", "would be downgraded", "-", "-"]]
    assert kctl(f"features downgrade {line}=0").status == 5
    assert level(kctl) == 1
    try:
        assert kctl(f"features downgrade {line}=0 --yes").rows == [[ELR, "1", "0", "downgraded", "-", "-"]]
        assert level(kctl) == 0
    finally:
        assert kctl(f"features upgrade {line}=1 --yes").rows == [[ELR, "0", "1", "upgraded", "-", "-"]]
    assert level(kctl) == 1


@ON_KAFKA_4
def test_refused_updates_name_the_reason(kctl: Kctl) -> None:
    for line in ("upgrade --feature nosuch=1", "upgrade --metadata-version 999", "upgrade --metadata-version 3.9"):
        for how in ("--dry-run", "--yes"):
            ran = kctl(f"features {line} {how}")
            assert (ran.status, ran.rows[0][3]) == (1, "-")
            assert ran.rows[0][4] == "INVALID_UPDATE_VERSION"
    for line in ("upgrade", "upgrade --metadata-version x", "upgrade --feature a=0", "downgrade --feature a=-1"):
        assert kctl(f"features {line} --yes").status == 2


def level(kctl: Kctl) -> int:
    (found,) = (row["finalized"] for row in kctl("features describe --format json").document if row["feature"] == ELR)
    return int(found)
