"""kctl consume and produce with several topics: names, wildcards and regular expressions."""

from __future__ import annotations

import json

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers.ran import Ran
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.test_records import stdin


@pytest.fixture
def shop(cluster: FakeCluster) -> FakeCluster:
    """Topics with one record per partition; its value is the topic and its timestamp the age of the topic."""
    for age, (name, partitions) in enumerate(
        (("shop.orders", 2), ("shop.payments", 1), ("shopping", 1), ("__shop", 1)), start=1
    ):
        for number, log in enumerate(cluster.create(name, leaders=partitions)):
            log.append(build_batch([Record(0, age * 1_000 + number, b"k", name.encode(), ())]))
    return cluster


@pytest.mark.usefixtures("shop")
@for_rows(
    "words, topics",
    [
        ("shop.orders shop.payments", ["shop.orders", "shop.orders", "shop.payments"]),
        ("shopping shopping", ["shopping"]),
        ("shop.*", ["shop.orders", "shop.orders", "shop.payments"]),
        ("shop.???????? shop*ng", ["shop.payments", "shopping"]),
        ("*", ["shop.orders", "shop.orders", "shop.payments", "shopping"]),
        ("shop.p* __shop", ["__shop", "shop.payments"]),
        ("--topic-regex shop[.]?p.*", ["shop.payments", "shopping"]),
        ("--include (__)?shop.o.*", ["shop.orders", "shop.orders"]),
        ("shop* --from @1970-01-01T00:00:03Z", ["shopping"]),
        ("shop* --where topic='shopping'", ["shopping"]),
        ("shop.* --key k --partition-of-key", ["shop.orders", "shop.payments"]),
    ],
)
@pytest.mark.long
def test_topics_are_selected(kctl: Kctl, words: str, topics: list[str]) -> None:
    ran = kctl(f"consume {words} --format jsonl")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    read = sorted(row["topic"] for row in rows)
    if "partition-of-key" in words:  # those of two partitioners
        read = sorted(set(read))
    assert (ran.status, read) == (0, topics), ran.err
    assert all(row["topic"] == row["value"] for row in rows)


@pytest.mark.usefixtures("shop")
def test_a_column_names_the_topic_if_several_can_be_read(kctl: Kctl) -> None:
    header = "partition,offset,time,key,value,headers"
    assert kctl("consume shopping --format csv").out.splitlines()[0] == header
    for words in ("shopping shop.orders", "shopp*"):
        assert kctl(f"consume {words} --format csv").out.splitlines()[0] == f"topic,{header}", words
    ran = kctl("consume shopp*")
    assert (ran.rows, ran.err) == (
        [["shopping", "0", "0", "1970-01-01T00:00:03.000Z", "k", "shopping", "-"]],
        "reading 1 topic: shopping\n",
    )
    assert kctl("consume shop* -f %t:%p\\n").out == "shop.orders:0\nshop.orders:1\nshop.payments:0\nshopping:0\n"


@pytest.mark.usefixtures("shop")
def test_the_last_records_are_those_of_all_topics_together(kctl: Kctl) -> None:
    rows = [json.loads(line) for line in kctl("consume shop* --last 3 --format jsonl").out.splitlines()]
    assert [(row["topic"], row["partition"]) for row in rows] == [
        ("shop.orders", 1),
        ("shop.payments", 0),
        ("shopping", 0),
    ]


@pytest.mark.usefixtures("shop")
@for_rows(
    "words, status, message",
    [
        ("", ExitStatus.USAGE, "give topics or --topic-regex"),
        ("shopping --topic-regex shop", ExitStatus.USAGE, "give topics or --topic-regex"),
        ("^shop", ExitStatus.USAGE, "'^shop' is not the name of a topic; --topic-regex takes a regular"),
        ("--topic-regex (", ExitStatus.USAGE, "--topic-regex: '(' is not a valid regular expression"),
        ("shop* --partition 0", ExitStatus.USAGE, "--partition names partitions of one topic; give one TOPIC"),
        ("shop* shopping --group g", ExitStatus.USAGE, "give names of topics or patterns, not both"),
        ("a* b?", ExitStatus.FAILED, "no topic matches 'a*' or 'b?'; internal topics are read only if"),
        ("--topic-regex __shop", ExitStatus.FAILED, "no topic matches --topic-regex '__shop'"),
        ("shopping nope", ExitStatus.FAILED, "nope"),
    ],
)
def test_selections_that_cannot_be_read_are_refused(kctl: Kctl, words: str, status: ExitStatus, message: str) -> None:
    ran = kctl(f"consume {words}")
    assert (ran.out, ran.status) == ("", status), ran.err
    assert message in ran.err, ran.err


@pytest.mark.long
def test_topic_that_is_created_later_is_read_from_its_start(kctl: Kctl, shop: FakeCluster) -> None:
    """While there is no topic to read, and while others are read."""

    def create(name: str, *, is_due: bool) -> None:
        if is_due and name not in shop.topics:
            shop.create(name)[0].append(build_batch([Record(0, 9_000, None, b"new")]))

    def follow(pattern: str) -> Ran:
        return kctl(f"consume {pattern} --follow -n 1 --from end --value-only --command-property metadata.max.age.ms=1")

    shop.intercept(MetadataRequest, lambda _: create("late", is_due=len(shop.requested(MetadataRequest)) > 4))
    ran = follow("late*")
    assert (ran.status, ran.out) == (0, "new\n"), ran.err
    assert ran.err.startswith("no topic matches 'late*'; waiting until one is created\n"), ran.err
    assert "1 new topic, read from the start: late" in ran.err
    shop.intercept(FetchRequest, lambda _: create("shop.late", is_due=True))
    ran = follow("shop*")
    assert (ran.status, ran.out) == (0, "new\n"), ran.err
    assert "1 new topic, read from the start: shop.late" in ran.err


def test_each_record_is_written_to_the_topic_that_its_line_names(kctl: Kctl, shop: FakeCluster) -> None:
    lines = kctl("consume shop* --format jsonl").out
    assert lines.count("\n") == 4
    with stdin(lines.encode()):
        ran = kctl("produce --input jsonl")
    assert ran.status == 0, ran.err
    assert ran.err.startswith("4 records to 3 topics: shop.orders-0: offsets 1 to 1; ")
    counts = {"shop.orders": [2, 2], "shop.payments": [2], "shopping": [2], "__shop": [1]}
    for name, of_partitions in counts.items():
        assert [len(shop.records_of(name, number)) for number in range(len(of_partitions))] == of_partitions, name
    with stdin(lines.encode()):
        assert kctl("produce shopping --input jsonl --partition 0").status == 0
    assert len(shop.records_of("shopping", 0)) == 6


@pytest.mark.usefixtures("shop")
@for_rows(
    "line, words, message",
    [
        ('{"value":"a"}', "--input jsonl", 'line 1: no "topic" in it, and no TOPIC is given'),
        (
            '{"value":"a","topic":"nope"}',
            "--input jsonl",
            "line 1: topic 'nope' does not exist: 'kctl topics create nope' creates it",
        ),
        ('{"value":"a","topic":"\\ud800"}', "--input jsonl", "line 1: topic is '\\ud800', not the name of a topic"),
        ('{"value":"a","topic":7}', "--input jsonl", "line 1: topic is 7, not the name of a topic"),
        ('{"value":"a","topic":"shopping","partition":7}', "--input jsonl", "shopping has no partition 7; it has 1"),
        ("a", "", "give TOPIC; only with --input jsonl each line has one"),
        ("{}", "--input jsonl --value-schema latest", "--value-schema latest is that of TOPIC, and none is given"),
    ],
)
def test_lines_without_a_topic_are_refused(kctl: Kctl, line: str, words: str, message: str) -> None:
    with stdin(line.encode()):
        ran = kctl(f"produce {words}")
    assert (ran.status, message in ran.err) == (ExitStatus.USAGE, True), ran.err
