"""When the rounds of an export that repeats itself start, what they count, and how signals end them."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kctl.commands.export.follow import StopSignals, counts_of, is_retried
from kctl.commands.export.metrics import families
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError, UsageError
from kctl.metrics.exposition import Format
from kctl.tables.commits.commit_log import LostRace
from kctl.tables.exec.outcome import BadRecords, DataLoss
from kctl.tables.exports.export import Listener, Origin
from kctl.tables.exports.summary import rows_of
from kctl.tables.formats.table import TableFailed
from kctl.tables.plans import following
from kctl.tables.plans.following import RETRY_MS_MAX, FollowState, TopicCounts
from kctl.tables.plans.plan import Plan
from tests.rows import for_rows
from tests.unit.spark.crashing_files import Crash, CrashingFiles
from tests.unit.spark.scene import Cluster, assert_exact, exporter, run

DAY_MS = 86_400_000


def table_failed(cause: Exception) -> TableFailed:
    error = TableFailed("x")
    error.__cause__ = cause
    return error


def test_rounds_start_at_fixed_times_unless_one_takes_longer() -> None:
    state = following.started(FollowState(every_ms=60_000), 5_000)
    assert following.succeeded(state, {}, 8_000, commits=0).due_ms == 65_000
    assert following.succeeded(state, {}, 99_000, commits=0).due_ms == 99_000


@given(st.lists(st.booleans(), max_size=40))
def test_the_wait_doubles_with_each_failure_up_to_a_minute(outcomes: list[bool]) -> None:
    state = FollowState(every_ms=1)
    in_row = 0
    for works in outcomes:
        state = following.started(state, 0)
        if works:
            state, in_row = following.succeeded(state, {}, 0, commits=0), 0
            assert (state.problem, state.failures) == ("", 0)
        else:
            state, in_row = following.failed(state, "gone", 0), in_row + 1
            assert state.due_ms == min(1000 * 2 ** (in_row - 1), RETRY_MS_MAX)
            assert state.problem == "gone"
    assert (state.rounds, state.failed_rounds) == (outcomes.count(True), outcomes.count(False))


def test_lag_is_what_is_planned_until_it_is_committed(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.append(0, 7)
    plan, _, _ = exporter(cluster, tmp_path).plan()
    assert plan is not None
    (topic,) = plan.topics
    state = following.planned(FollowState(every_ms=1), plan)
    assert state.lag[topic] == 7
    assert following.failed(state, "x", 0).lag[topic] == 7
    state = following.succeeded(state, {topic: TopicCounts(7, 100)}, 50, commits=1)
    state = following.succeeded(state, {topic: TopicCounts(2, 10, lost=1)}, 60, commits=0)
    assert (state.lag[topic], state.topics[topic], state.committed_ms) == (0, TopicCounts(9, 110, 1), 50)


def test_metrics_have_the_values_of_the_state() -> None:
    state = following.failed(FollowState(every_ms=1, lag={"a": 4}, committed_ms=1_000), "x", 0)
    state = following.succeeded(state, {"a": TopicCounts(5, 60, 7, 8)}, 2_000, commits=0)
    text = Format("").metrics(families(state, 3_500)).decode()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples == {
        ("kctl_export_rounds_total",): 1,
        ("kctl_export_failed_rounds_total",): 1,
        ("kctl_export_records_total", "a"): 5,
        ("kctl_export_read_bytes_total", "a"): 60,
        ("kctl_export_lost_offsets_total", "a"): 7,
        ("kctl_export_bad_records_total", "a"): 8,
        ("kctl_export_lag_offsets", "a"): 0,
        ("kctl_export_last_commit_age_seconds",): 2.5,
    }


@for_rows(
    "error, is_temporary",
    [
        (ClusterUnreachable("x"), True),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"), True),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x"), False),
        (OSError(28, "No space left on device"), True),
        (KctlError("the process of a task died 4 times"), True),
        (DataLoss("x"), False),
        (BadRecords("x"), False),
        (LostRace("x"), False),
        (UsageError("x"), False),
        (table_failed(OSError("AWS Error NETWORK_CONNECTION")), True),
        (table_failed(FileNotFoundError("metadata")), False),
    ],
)
def test_errors_that_only_a_person_can_resolve_end_the_export(error: Exception, is_temporary: bool) -> None:
    assert is_retried(error) is is_temporary


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_wait_and_the_second_one_has_its_usual_effect(number: int) -> None:
    def usual(_number: int, _frame: object) -> None:
        raise InterruptedError

    before = signal.signal(number, usual)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), number)
            stop.wait(600)
            assert stop.is_requested
            with pytest.raises(InterruptedError):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)


@pytest.mark.long
def test_a_day_of_rounds_exports_every_record_once(tmp_path: Path) -> None:
    """In virtual time, every 15 minutes: brokers are gone at times, and power failures end rounds at any step."""
    chance, cluster = random.Random(1), Cluster()
    state, now_ms, crashes, commits, failures = FollowState(every_ms=900_000), 0, 0, 0, 0

    def on_plan(plan: Plan, _: Origin) -> None:
        nonlocal state
        state = following.planned(state, plan)

    while now_ms < DAY_MS:
        cluster.append(chance.randrange(2), chance.randrange(25))
        cluster.is_reachable = chance.random() > 0.1
        files = CrashingFiles(tmp_path, chance.randrange(1, 100))
        files.keep_all()
        state = following.started(state, now_ms)
        try:
            report = exporter(cluster, tmp_path, files=files).run(Listener(on_plan, lambda _: None))
        except ClusterUnreachable as error:
            state, failures = following.failed(state, str(error), now_ms), failures + 1
        except Crash:
            files.lose_unsynced()
            state, crashes = FollowState(every_ms=900_000, due_ms=now_ms + 5_000), crashes + 1
        else:
            counts = counts_of(rows_of(report))
            state = following.succeeded(state, counts, now_ms, commits=len(report.batches))
            commits += len(report.batches)
            assert set(state.lag.values()) <= {0}
        now_ms = state.due_ms
    cluster.is_reachable = True
    run(cluster, tmp_path)
    assert_exact(cluster, tmp_path)
    assert commits > 60
    assert min(crashes, failures) > 3
