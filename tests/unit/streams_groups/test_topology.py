"""Numbers of partitions of internal topics, and topologies that cannot run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.coordination.streams_groups.state import (
    CopartitionGroup,
    InternalTopic,
    Status,
    Subtopology,
    Topology,
)
from kctl.server.coordination.streams_groups.topology import ConfiguredTopology, configure


def configured(existing: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    return configure(Topology(1, {entry.subtopology_id: entry for entry in subtopologies}), existing.get)


def counts(topology: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in topology.missing}


def repartition(name: str, partitions: int = 0) -> InternalTopic:
    return InternalTopic(name=name, partitions=partitions)


def test_internal_topics_have_the_partitions_of_what_is_read() -> None:
    """A chain: a writes r, which b reads together with u and writes s, which c reads."""
    topology = configured(
        {"t": 3, "u": 5},
        Subtopology(subtopology_id="c", repartition_sources=(repartition("s"),), changelogs=(repartition("c-log"),)),
        Subtopology(
            subtopology_id="b",
            source_topics=("u",),
            repartition_sources=(repartition("r"),),
            repartition_sinks=("s",),
            changelogs=(repartition("b-log"),),
        ),
        Subtopology(subtopology_id="a", source_topics=("t",), repartition_sinks=("r",)),
    )
    assert counts(topology) == {"r": 3, "s": 5, "b-log": 5, "c-log": 5}
    assert {name: entry.tasks for name, entry in topology.subtopologies.items()} == {"a": 3, "b": 5, "c": 5}
    assert topology.problem == (
        Status.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: b-log, c-log, r and 1 additional topics",
    )


def test_copartitioned_topics_have_the_same_partitions() -> None:
    writer = Subtopology(subtopology_id="w", source_topics=("t",), repartition_sinks=("r", "s"))

    def reader(sources: tuple[str, ...], *topics: InternalTopic) -> Subtopology:
        group = CopartitionGroup(tuple(range(len(sources))), (), tuple(range(len(topics))))
        return Subtopology(
            subtopology_id="r", source_topics=sources, repartition_sources=topics, copartition_groups=(group,)
        )

    existing = {"t": 3, "u": 6, "v": 6}
    assert counts(configured(existing, writer, reader(("u", "v"), repartition("r")))) == {"r": 6}
    assert counts(configured(existing, writer, reader((), repartition("r"), repartition("s", 4)))) == {"r": 4, "s": 4}
    assert counts(configured(existing, writer, reader((), repartition("r"), repartition("s")))) == {"r": 3, "s": 3}
    wrong = (
        reader(("t", "u")),
        reader(("u",), repartition("r", 5)),
        reader((), repartition("r", 4), repartition("s", 5)),
    )
    for subtopology in wrong:
        problem = configured(existing, writer, subtopology).problem
        assert problem is not None
        assert problem[0] is Status.INCORRECTLY_PARTITIONED_TOPICS


def test_existing_internal_topics_need_the_right_number_of_partitions() -> None:
    subtopology = Subtopology(subtopology_id="0", source_topics=("t",), changelogs=(repartition("log"),))
    assert configured({"t": 3, "log": 3}, subtopology).is_ready
    detail = "Existing topic log has different number of partitions: expected 3, found 2"
    assert configured({"t": 3, "log": 2}, subtopology).problem == (Status.INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert configured({"log": 3}, subtopology).problem == (
        Status.MISSING_SOURCE_TOPICS,
        "Source topics t are missing.",
    )


def test_a_topology_that_can_never_run_is_refused() -> None:
    loop = (
        Subtopology(subtopology_id="0", repartition_sources=(repartition("r"),), repartition_sinks=("s",)),
        Subtopology(subtopology_id="1", repartition_sources=(repartition("s"),), repartition_sinks=("r",)),
    )
    never_written = (Subtopology(subtopology_id="0", source_topics=("t",), repartition_sources=(repartition("r"),)),)
    for subtopologies in (loop, never_written, (Subtopology(subtopology_id="0"),)):
        with pytest.raises(ApiError) as refusal:
            configured({"t": 1}, *subtopologies)
        assert refusal.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_long_chain_of_repartitions_is_decided_in_the_worst_order() -> None:
    """500 subtopologies, each of which needs the next one: every round decides one more topic."""
    length = 500
    chain = [
        Subtopology(
            subtopology_id=f"{number:03}",
            repartition_sources=(repartition(f"r{number + 1}"),),
            repartition_sinks=(f"r{number}",),
        )
        for number in range(length)
    ]
    last = Subtopology(subtopology_id="last", source_topics=("t",), repartition_sinks=(f"r{length}",))
    topology = configured({"t": 7}, *chain, last)
    assert set(counts(topology).values()) == {7}
    assert len(topology.missing) == length
