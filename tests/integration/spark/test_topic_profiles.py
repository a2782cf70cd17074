"""`kctl tables profile` of topics of kctl's broker and Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kctl.cli import main
from tests.integration.spark.peer import Topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_committed_records_of_a_range_are_profiled(
    bootstrap: str, make_topic: MakeTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(bootstrap, 3)
    entries = [
        {"value": b'{"n": %d}' % n if n % 4 else None, "key": b"k%d" % (n % 5), "partition": n % 2} for n in range(400)
    ]
    topic.produce(entries, codec="lz4")
    topic.produce_aborted(entries[:10], f"{topic.name}-aborted")

    def profile(*words: str) -> str:
        command = ["tables", "profile", topic.name, "--bootstrap-server", topic.bootstrap, "--timeout", "60s", *words]
        assert main(command) == 0
        return capsys.readouterr().out

    found = json.loads(profile("--format", "json"))
    assert [(partition["partition"], partition["records"]) for partition in found["partitions"]] == [
        (0, 200),
        (1, 200),
        (2, 0),
    ]
    assert (found["records"], found["null_values"], found["keys"]["distinct"]) == (400, 100, 5)
    assert found["keys"]["in_several_partitions"] == 5
    assert [key["records"] for key in found["keys"]["top"]] == [80] * 5
    assert [(field["field"], field["values"]) for field in found["values"]["fields"]] == [("n", 300)]

    uncommitted = json.loads(profile("--format", "json", "--isolation-level", "read_uncommitted"))
    assert uncommitted["records"] == 410
    part = json.loads(profile("--format", "json", "--partitions", "1", "--from", "50", "--until", "60"))
    assert [(partition["start"], partition["end"], partition["records"]) for partition in part["partitions"]] == [
        (50, 60, 10)
    ]
    assert "VALUE-BYTES" in profile("--format", "table")
    assert len(profile("--format", "plain").splitlines()) == 3
    assert len(profile("--format", "csv").splitlines()) == 4
