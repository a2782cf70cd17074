"""The offsets that a run exports, and their division into files."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from kctl.client.consuming.positions import Divergence
from kctl.client.consuming.positions import Position as History
from kctl.errors import UsageError
from kctl.model import ZERO_UUID, TopicPartition
from kctl.tables.commits.commit_json import plan_from_json, plan_to_json, topics_from_json, topics_to_json
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.reading.histories import history_of
from kctl.tables.formats.delta_log import positions_in, transactions_of
from kctl.tables.plans.density import Sample
from kctl.tables.plans.plan import (
    ClusterView,
    FileOptions,
    OnDataLoss,
    PartitionView,
    Plan,
    Position,
    Positions,
    Replaced,
    TopicPosition,
    TopicView,
    advance,
    with_samples,
)
from kctl.tables.plans.planning import FILE_BYTES_MIN, SplitRule, make_plan

ORDERS = UUID(int=1)
RECREATED = UUID(int=2)
CLUSTER = "cluster-a"


def partition(log_start: int = 0, end: int = 100, **more: Any) -> PartitionView:
    defaults: dict[str, Any] = {"high_watermark": end, "start": log_start, "until": end, "size_bytes": 0}
    return PartitionView(log_start=log_start, end=end, **(defaults | more))


def view(*partitions: PartitionView, topic_id: UUID = ORDERS, cluster_id: str = CLUSTER) -> ClusterView:
    return ClusterView(cluster_id, {"orders": TopicView(topic_id, dict(enumerate(partitions)))})


def exported(*offsets: int, topic_id: UUID = ORDERS, incarnation: int = 0, last_batch: int = 6) -> Positions:
    partitions = {p: Position(offset, incarnation) for p, offset in enumerate(offsets)}
    topics = {"orders": TopicPosition(topic_id, CLUSTER, incarnation, partitions)}
    return Positions(last_batch=last_batch, topics=topics, include_headers=False)


def planned(
    positions: Positions,
    seen: ClusterView,
    *,
    options: FileOptions | None = None,
    split: SplitRule | None = None,
    on_data_loss: OnDataLoss = OnDataLoss.FAIL,
) -> tuple[Plan | None, list[str]]:
    return make_plan(
        positions,
        seen,
        options=options or FileOptions(),
        split=split or SplitRule(target_file_bytes=256 << 20, parallelism=2),
        on_data_loss=on_data_loss,
        now_ms=1,
    )


def ranges(plan: Plan | None) -> list[tuple[int, int, int]]:
    assert plan is not None
    return [(range_.tp.partition, range_.start, range_.end) for range_ in plan.ranges]


def test_the_first_run_exports_what_the_log_holds() -> None:
    plan, warnings = planned(Positions(), view(partition(40, 100), partition(0, 7)))
    assert ranges(plan) == [(0, 40, 100), (1, 0, 7)]
    assert plan is not None
    assert plan.batch == 0
    assert not warnings


def test_a_later_run_continues_where_the_last_one_ended_despite_from() -> None:
    plan, _ = planned(exported(60, 7), view(partition(0, 100, start=90), partition(0, 9, start=9)))
    assert ranges(plan) == [(0, 60, 100), (1, 7, 9)]
    assert plan is not None
    assert plan.batch == 7


def test_nothing_new_is_no_plan() -> None:
    assert planned(exported(100), view(partition(0, 100))) == (None, [])


def test_a_partition_without_new_records_is_left_out() -> None:
    plan, _ = planned(exported(100, 50), view(partition(0, 100), partition(0, 60)))
    assert ranges(plan) == [(1, 50, 60)]


def test_from_latest_records_the_position_without_files() -> None:
    plan, _ = planned(Positions(), view(partition(0, 100, start=100)))
    assert ranges(plan) == [(0, 100, 100)]
    assert plan is not None
    assert plan.file_count == 0
    assert advance(Positions(), plan).topics["orders"].partitions == {0: Position(100, 0)}


def test_a_partition_added_to_an_exported_topic_starts_at_its_beginning_despite_from() -> None:
    """With --from latest, the records from its creation to the next run would be lost."""
    for start in (5, 100):
        plan, _ = planned(exported(100), view(partition(0, 100), partition(0, 5, start=start)))
        assert ranges(plan) == [(1, 0, 5)]


def test_a_partition_that_was_not_selected_before_starts_at_from() -> None:
    positions = Positions(last_batch=0, topics={"orders": TopicPosition(ORDERS, CLUSTER, 0, {1: Position(7, 0)})})
    plan, _ = planned(positions, view(partition(0, 100, start=90), partition(0, 7)))
    assert ranges(plan) == [(0, 90, 100)]


def test_a_start_beyond_the_end_is_refused_for_partitions_that_would_start_there() -> None:
    beyond = {"start": 60}
    assert planned(exported(50), view(partition(0, 50, **beyond))) == (None, [])
    with pytest.raises(UsageError, match="orders-0 ends at offset 50, before 60"):
        planned(Positions(), view(partition(0, 50, **beyond)))


def test_until_ends_a_run_and_the_next_one_continues_there() -> None:
    plan, _ = planned(Positions(), view(partition(0, 100, until=30)))
    assert ranges(plan) == [(0, 0, 30)]
    assert plan is not None
    further, _ = planned(advance(Positions(), plan), view(partition(0, 100)))
    assert ranges(further) == [(0, 30, 100)]


def test_until_behind_the_position_is_nothing_new() -> None:
    assert planned(exported(60), view(partition(0, 100, until=30))) == (None, [])


def test_the_last_stable_offset_ends_a_read_committed_export() -> None:
    plan, _ = planned(Positions(), view(partition(0, 80, high_watermark=100, until=100)))
    assert ranges(plan) == [(0, 0, 80)]


def test_a_position_between_last_stable_offset_and_high_watermark_is_no_loss() -> None:
    """An export with read_uncommitted precedes it."""
    assert planned(exported(90), view(partition(0, 80, high_watermark=100))) == (None, [])


def test_expired_offsets_fail_the_run() -> None:
    with pytest.raises(DataLoss, match="orders-0: offsets 60 to 79 are gone, the log starts at 80"):
        planned(exported(60), view(partition(80, 100)))


def test_expired_offsets_are_counted_where_losses_are_tolerated() -> None:
    plan, warnings = planned(exported(60), view(partition(80, 100)), on_data_loss=OnDataLoss.WARN)
    assert ranges(plan) == [(0, 80, 100)]
    assert plan is not None
    assert plan.ranges[0].lost == 20
    assert warnings == ["orders-0: offsets 60 to 79 are gone, the log starts at 80"]


def test_everything_expired_moves_the_position() -> None:
    plan, _ = planned(exported(60), view(partition(80, 80)), on_data_loss=OnDataLoss.WARN)
    assert plan is not None
    assert advance(exported(60), plan).topics["orders"].partitions[0] == Position(80, 0)


def test_a_topic_that_was_created_anew_is_recognised_by_its_id() -> None:
    with pytest.raises(DataLoss, match="deleted and created again"):
        planned(exported(60), view(partition(0, 100), topic_id=RECREATED))


def test_a_topic_that_was_created_anew_begins_at_its_start_under_names_of_its_own() -> None:
    before = exported(60)
    plan, _ = planned(before, view(partition(0, 60, start=60), topic_id=RECREATED), on_data_loss=OnDataLoss.WARN)
    assert ranges(plan) == [(0, 0, 60)]
    assert plan is not None
    (file,) = plan.ranges[0].files
    assert file.path == f"orders+r1+{RECREATED}/orders+0+00000000000000000000-00000000000000000060+r1.parquet"
    after = advance(before, plan)
    assert after.topics["orders"].topic_id == RECREATED
    assert planned(after, view(partition(0, 60), topic_id=RECREATED)) == (None, [])


def test_partitions_of_the_former_topic_are_removed() -> None:
    """Including topics that the run does not export."""
    before = exported(60, 70)
    plan, _ = planned(before, view(partition(0, 10), topic_id=RECREATED), on_data_loss=OnDataLoss.WARN)
    assert plan is not None
    after = advance(before, plan)
    assert after.topics["orders"].partitions == {0: Position(10, 1)}
    further, _ = planned(after, view(partition(0, 10), partition(0, 3), topic_id=RECREATED))
    assert further is not None
    assert further.ranges[0].files[0].path.endswith("+1+00000000000000000000-00000000000000000003+r1.parquet")


def test_without_topic_ids_another_cluster_is_another_topic() -> None:
    positions = exported(60, topic_id=ZERO_UUID)
    assert planned(positions, view(partition(0, 60), topic_id=ZERO_UUID)) == (None, [])
    with pytest.raises(DataLoss, match="created again"):
        planned(positions, view(partition(0, 60), topic_id=ZERO_UUID, cluster_id="cluster-b"))


def test_a_log_that_ends_before_the_position_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="orders-0 was exported up to offset 60 but ends at 40"):
        planned(exported(60), view(partition(0, 40)))


def test_a_truncated_partition_goes_on_at_its_end_under_a_name_of_its_own() -> None:
    before = exported(60, 10)
    plan, _ = planned(before, view(partition(0, 40), partition(0, 10)), on_data_loss=OnDataLoss.WARN)
    assert ranges(plan) == [(0, 40, 40)]
    assert plan is not None
    after = advance(before, plan)
    assert after.topics["orders"].partitions == {0: Position(40, 1), 1: Position(10, 0)}
    further, _ = planned(after, view(partition(0, 60), partition(0, 20)))
    assert further is not None
    assert [range_.incarnation for range_ in further.ranges] == [1, 0]


def test_without_topic_ids_a_log_that_ends_early_counts_as_created_anew() -> None:
    positions = exported(60, topic_id=ZERO_UUID)
    seen = view(partition(0, 40), topic_id=ZERO_UUID)
    plan, _ = planned(positions, seen, on_data_loss=OnDataLoss.WARN)
    assert ranges(plan) == [(0, 0, 40)]


def with_history(offset: int, history: History, topic_id: UUID = ORDERS) -> Positions:
    topics = {"orders": TopicPosition(topic_id, CLUSTER, 0, {0: Position(offset, 0, history)})}
    return Positions(last_batch=6, topics=topics, include_headers=False)


def diverged(end: int | None, epoch: int = 1, **more: Any) -> PartitionView:
    """A log of 200 offsets whose leader has epoch 5, and the history before offset `end` only."""
    divergence = Divergence(TopicPartition("orders", 0), history_of(150, 3), end, epoch)
    return partition(more.pop("log_start", 0), 200, history=history_of(200, 5), divergence=divergence, **more)


def test_a_log_without_the_exported_history_is_a_loss_and_goes_on_where_the_histories_part() -> None:
    before = with_history(150, history_of(150, 3))
    for there, start, replaced, text in (
        (diverged(50), 50, Replaced(0, 0, 50, 150, 3), "truncated at offset 50.* offsets 50 to 149 were exported"),
        (diverged(50, log_start=80), 80, Replaced(0, 0, 50, 150, 3), "offsets 50 to 149"),
        (diverged(None, log_start=30), 30, Replaced(0, 0, 30, 150, 3), "no history with leader epoch 3"),
        (diverged(None, log_start=160), 160, None, "no history with leader epoch 3"),
    ):
        with pytest.raises(DataLoss, match=text):
            planned(before, view(there))
        plan, _ = planned(before, view(there), on_data_loss=OnDataLoss.WARN)
        assert plan is not None
        (range_,) = plan.ranges
        assert (range_.start, range_.end, range_.incarnation, range_.replaced) == (start, 200, 1, replaced), text
        assert range_.lost == max(start - 150, 0) if replaced is None else range_.lost == start - replaced.start
        after = advance(before, plan_from_json(json.loads(json.dumps(plan_to_json(plan)))))
        topics = topics_from_json(json.loads(json.dumps(topics_to_json(after.topics))))
        assert topics["orders"].partitions == {0: Position(200, 1, history_of(200, 5))}
        assert topics["orders"].replaced == ((replaced,) if replaced else ())
        assert positions_in(transactions_of(before.topics) | transactions_of(after.topics)) == topics
        assert planned(after, view(partition(0, 200, history=history_of(200, 6)))) == (None, [])


def test_histories_that_part_after_the_exported_offsets_are_no_loss() -> None:
    """An export with --until, or of a log with an open transaction, ends before the high watermark."""
    assert planned(with_history(50, history_of(150, 3)), view(diverged(50, until=50))) == (None, [])


def test_a_truncation_with_earlier_epochs_is_known_without_topic_ids() -> None:
    before = with_history(150, history_of(150, 3), ZERO_UUID)
    for epoch, start in ((1, 50), (3, 0)):
        seen = view(diverged(50, epoch), topic_id=ZERO_UUID)
        assert ranges(planned(before, seen, on_data_loss=OnDataLoss.WARN)[0]) == [(0, start, 200)], epoch


def test_a_position_of_an_earlier_version_gets_a_history_once() -> None:
    document = topics_to_json(exported(100).topics)
    assert topics_from_json(document) == exported(100).topics
    before, seen = exported(100), view(partition(0, 100, history=history_of(100, 2)))
    plan, losses = planned(before, seen)
    assert (ranges(plan), losses) == ([(0, 100, 100)], [])
    assert plan is not None
    after = advance(before, plan)
    assert after.topics["orders"].partitions == {0: Position(100, 0, history_of(100, 2))}
    assert planned(after, view(partition(0, 100, history=history_of(100, 4)))) == (None, [])


def test_several_losses_are_reported_together() -> None:
    with pytest.raises(DataLoss, match=r"orders-0.*; orders-1"):
        planned(exported(60, 60), view(partition(80, 100), partition(80, 100)))


def test_the_headers_column_is_the_same_in_all_files_of_a_folder() -> None:
    with pytest.raises(UsageError, match="without headers: leave out --include-headers"):
        planned(exported(60), view(partition()), options=FileOptions(include_headers=True))


def test_large_ranges_are_cut_near_the_target_size() -> None:
    big = partition(0, 1000, size_bytes=1000 << 20)
    plan, _ = planned(Positions(), view(big), split=SplitRule(target_file_bytes=250 << 20, parallelism=2))
    assert plan is not None
    assert [(file.start, file.end) for file in plan.ranges[0].files] == [(0, 250), (250, 500), (500, 750), (750, 1000)]


def test_files_are_cut_smaller_to_keep_all_cores_busy_but_not_tiny() -> None:
    big = partition(0, 1000, size_bytes=4 * FILE_BYTES_MIN)
    wide = SplitRule(target_file_bytes=1 << 30, parallelism=2)
    plan, _ = planned(Positions(), view(big), split=wide)
    assert plan is not None
    assert plan.file_count == 2
    wider = SplitRule(target_file_bytes=1 << 30, parallelism=100)
    plan, _ = planned(Positions(), view(big), split=wider)
    assert plan is not None
    assert plan.file_count == 4


def test_an_increment_is_sized_by_its_share_of_the_log() -> None:
    big = partition(0, 1000, size_bytes=1000 << 20)
    plan, _ = planned(exported(900), view(big), split=SplitRule(target_file_bytes=50 << 20, parallelism=1))
    assert plan is not None
    assert [(file.start, file.end) for file in plan.ranges[0].files] == [(900, 950), (950, 1000)]


def test_a_single_offset_is_one_file_however_large() -> None:
    plan, _ = planned(Positions(), view(partition(0, 1, size_bytes=1 << 40)))
    assert plan is not None
    assert plan.file_count == 1


def test_ranges_are_in_the_order_of_topic_and_partition() -> None:
    topics = {name: TopicView(ORDERS, {1: partition(), 0: partition()}) for name in ("b", "a")}
    plan, _ = planned(Positions(), ClusterView(CLUSTER, topics))
    assert plan is not None
    assert [range_.tp for range_ in plan.ranges] == [
        TopicPartition("a", 0),
        TopicPartition("a", 1),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    ]


def paths(plan: Plan | None) -> list[str]:
    assert plan is not None
    return list(plan.shares())


def test_small_partitions_share_a_file() -> None:
    plan, _ = planned(Positions(), view(*[partition(0, 10, size_bytes=1000)] * 100))
    (path,) = paths(plan)
    assert path.startswith("orders/orders+0-99+")
    assert ranges(plan) == [(p, 0, 10) for p in range(100)]


def test_small_partitions_share_files_up_to_the_target_size() -> None:
    small = partition(0, 10, size_bytes=40)
    plan, _ = planned(Positions(), view(*[small] * 5), split=SplitRule(target_file_bytes=100, parallelism=1))
    assert plan is not None
    assert [[range_.tp.partition for range_, _ in shares] for shares in plan.shares().values()] == [[0, 1], [2, 3], [4]]


def test_partitions_share_no_file_where_cores_would_be_idle() -> None:
    """Six partitions of 40 MB on two cores: two files of three partitions each would not be balanced."""
    large = partition(0, 1000, size_bytes=40 << 20)
    plan, _ = planned(Positions(), view(*[large] * 6), split=SplitRule(target_file_bytes=256 << 20, parallelism=2))
    assert len(paths(plan)) == 6


def test_a_large_partition_shares_no_file() -> None:
    parts = [partition(0, 10, size_bytes=size) for size in (10, 1000, 10, 10)]
    plan, _ = planned(Positions(), view(*parts), split=SplitRule(target_file_bytes=500, parallelism=1))
    assert plan is not None
    held = [[(range_.tp.partition, file.start) for range_, file in shares] for shares in plan.shares().values()]
    assert held == [[(0, 0)], [(1, 0)], [(1, 5)], [(2, 0), (3, 0)]]


def test_partitions_of_unknown_size_share_no_file() -> None:
    plan, _ = planned(Positions(), view(*[partition(0, 10)] * 3))
    assert len(paths(plan)) == 3


def test_topics_and_incarnations_share_no_file() -> None:
    small = partition(0, 60, size_bytes=10)
    topics = {name: TopicView(ORDERS, {0: small, 1: small}) for name in ("a", "b")}
    plan, _ = planned(Positions(), ClusterView(CLUSTER, topics))
    assert [path.partition("+")[0] for path in paths(plan)] == ["a/a", "b/b"]
    truncated = Positions(
        topics={"orders": TopicPosition(ORDERS, CLUSTER, 1, {0: Position(40, 1), 1: Position(40, 0)})}
    )
    plan, _ = planned(truncated, view(small, small))
    assert len(paths(plan)) == 2


def test_a_partition_that_only_records_its_position_is_in_no_file() -> None:
    small, empty = partition(0, 10, size_bytes=10), partition(0, 10, start=10, size_bytes=10)
    plan, _ = planned(Positions(), view(small, empty, small))
    assert plan is not None
    assert [len(range_.files) for range_ in plan.ranges] == [1, 0, 1]


def test_the_name_of_a_shared_file_depends_on_its_ranges_alone() -> None:
    def path(first_end: int, batch: int) -> str:
        parts = partition(0, first_end, size_bytes=10), partition(0, 5, size_bytes=10)
        (only,) = paths(planned(Positions(last_batch=batch), view(*parts))[0])
        return only

    assert path(10, 1) == path(10, 7)
    assert path(10, 1) != path(11, 1)


def test_the_number_of_ranges_in_a_file_is_bounded() -> None:
    plan, _ = planned(Positions(), view(*[partition(0, 1, size_bytes=1)] * 1200))
    assert plan is not None
    assert [len(shares) for shares in plan.shares().values()] == [500, 500, 200]


def test_a_compacted_partition_is_cut_by_size() -> None:
    """The samples show that the first eight tenths are empty."""
    samples = tuple(Sample(offset, max(offset, 800), max(offset, 800) + 1, 100) for offset in range(0, 1000, 20))
    compacted = partition(0, 1000, size_bytes=400)
    seen = with_samples(view(compacted), {TopicPartition("orders", 0): samples})
    plan, _ = planned(Positions(), seen, split=SplitRule(target_file_bytes=100, parallelism=1))
    assert plan is not None
    assert [(file.start, file.end) for file in plan.ranges[0].files] == [(0, 850), (850, 900), (900, 950), (950, 1000)]
