"""The verdicts that `kctl top` shows of groups."""

from __future__ import annotations

from kctl.admin.sampling.sample import LOOK_EVERY_MS, ClusterSample, GroupReading, GroupVerdicts
from kctl.client.metadata import ClusterMetadata
from kctl.lag.facts import WINDOW_MS, Position
from kctl.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


def sample(
    at_ms: int,
    *,
    committed: int | None,
    end: int,
    start: int = 0,
    is_read: bool = True,
    has_left: bool = False,
    commits: tuple[Position, ...] = (),
    commits_since_ms: int | None = None,
) -> ClusterSample:
    owners = {ORDERS: ("app", "/10.0.0.9")} if is_read else {}
    offsets = {} if committed is None else {ORDERS: committed}
    return ClusterSample(
        at_ms,
        ClusterMetadata("c", 1, {}, {}),
        ends={ORDERS: end},
        starts={ORDERS: start},
        groups={"g": GroupReading("Stable" if is_read else "Empty", int(is_read), offsets, owners, has_left)},
        commits={("g", ORDERS): commits},
        commits_since_ms={} if commits_since_ms is None else {"g": commits_since_ms},
    )


def verdict_after(*samples: ClusterSample) -> str | None:
    verdicts = GroupVerdicts()
    for sampled in samples:
        verdicts.observe(sampled)
    return verdicts.of("g")


def test_a_group_that_has_read_everything_is_ok() -> None:
    assert verdict_after(sample(0, committed=5, end=5, is_read=False)) == "OK"


def test_a_group_that_reads_is_ok() -> None:
    assert verdict_after(sample(0, committed=5, end=20), sample(5_000, committed=15, end=21)) == "OK"


def test_a_group_without_members_has_stopped_if_its_commits_are_known() -> None:
    found = [
        verdict_after(sample(0, committed=5, end=6, is_read=False, commits_since_ms=since_ms))
        for since_ms in (-WINDOW_MS, 1 - WINDOW_MS, None)
    ]
    assert found == ["STOPPED", "OK", "OK"]


def test_a_group_whose_members_have_left_has_stopped_at_once() -> None:
    found = [
        verdict_after(sample(0, committed=5, end=end, is_read=False, has_left=True, commits=(Position(last_ms, 5),)))
        for end, last_ms in ((6, -11_000), (5, -11_000), (6, -9_000))
    ]
    assert found == ["STOPPED", "OK", "OK"]


def test_a_job_that_commits_without_members_is_judged_by_its_commits() -> None:
    late = sample(0, committed=5, end=6, is_read=False, commits_since_ms=-WINDOW_MS, commits=(Position(-9_000, 5),))
    assert verdict_after(late) == "OK"


def test_a_group_without_members_that_is_seen_for_the_window_has_stopped() -> None:
    times = range(0, WINDOW_MS + 10_000, 10_000)
    assert verdict_after(*(sample(at_ms, committed=5, end=6, is_read=False) for at_ms in times)) == "STOPPED"


def test_a_member_that_does_not_move_for_the_window_is_stalled() -> None:
    verdicts = GroupVerdicts()
    found = {}
    for at_ms in range(0, 2 * WINDOW_MS, 10_000):
        verdicts.observe(sample(at_ms, committed=5, end=6))
        found[at_ms] = verdicts.of("g")
    assert {verdict for at_ms, verdict in found.items() if at_ms < WINDOW_MS} == {"OK", "WARN"}
    assert {verdict for at_ms, verdict in found.items() if at_ms >= WINDOW_MS} == {"STALLED"}


def test_an_offset_that_was_set_back_is_shown() -> None:
    assert verdict_after(sample(0, committed=5, end=6), sample(2_000, committed=2, end=6)) == "REWOUND"


def test_records_that_were_deleted_unread_are_lost() -> None:
    assert verdict_after(sample(0, committed=5, end=9, start=7)) == "LOSING"


def test_a_group_whose_member_has_not_committed_is_judged() -> None:
    assert verdict_after(sample(0, committed=None, end=6)) == "WARN"
    assert verdict_after(sample(0, committed=None, end=6, start=6)) == "OK"


def test_a_group_that_is_gone_has_no_verdict() -> None:
    gone = ClusterSample(1, ClusterMetadata("c", 1, {}, {}))
    assert verdict_after(sample(0, committed=5, end=6), gone) is None


def test_memory_is_bounded_however_long_the_screen_is_shown() -> None:
    verdicts = GroupVerdicts()
    for number in range(1_000):
        verdicts.observe(sample(number * 2_000, committed=number, end=number + 5))
        assert verdicts.look_count <= WINDOW_MS // LOOK_EVERY_MS + 2
    verdicts.observe(ClusterSample(9_000_000, ClusterMetadata("c", 1, {}, {})))
    assert verdicts.look_count == 0
