"""Executes moves: throttle, phases, progress, rollback file.  Shared by the commands that move partitions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.groups.undo_files import save_rollback, write_new
from kctl.admin.placement.documents import format_reassignment
from kctl.admin.placement.execution import start_moves, wait_for_moves
from kctl.admin.placement.plan import rollback, rollback_log_dirs
from kctl.admin.placement.state import phases_of_at_most
from kctl.admin.placement.throttling import key_of
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.reassign.rows import (
    NOT_STARTED,
    ROWS,
    STARTED,
    PlanRow,
    Report,
    duration_text,
    end_error,
    plan_row,
)
from kctl.commands.reassign.throttling import (
    records_of,
    restore,
    restore_after_failure,
    throttle,
    warn_throttle_stays,
)
from kctl.errors import ApiError, ErrorCode
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kctl.admin.placement.execution import Estimate, Situation
    from kctl.admin.placement.plan import Move
    from kctl.admin.placement.throttling import ThrottleRecords
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome
    from kctl.commands.frame.invocation import Invocation
    from kctl.model import TopicPartition


class Choices(NamedTuple):
    """How moves are executed, as the options say."""

    rate: int | None
    wait: bool
    max_moves: int | None
    additional: bool
    rollback_file: Path | None
    state_dir: str | None


def perform(run: Invocation, situation: Situation, choices: Choices, report: Report = ROWS) -> ExitStatus:
    """Start the moves of the situation, none of which has a problem; wait if chosen; show one row for each."""
    plan, rate = situation.moves, choices.rate
    same = {move.tp for move in plan if move.is_under_way}
    refuse_beside_others(situation.ongoing, same, report, additional=choices.additional)
    records = records_of(choices.state_dir, situation.metadata.cluster_id)
    key = key_of([move.tp for move in plan])
    _save_rollback(run, plan, records.folder, key, choices.rollback_file)
    phases = (
        [plan]
        if choices.max_moves is None
        else phases_of_at_most([move for move in plan if move.is_change], choices.max_moves)
    )
    rows = {move.tp: plan_row(move, NOT_STARTED) for move in plan}
    started: list[Move] = []
    for number, phase in enumerate(phases, 1):
        started = []
        if len(phases) > 1:
            run.console.note(f"phase {number} of {len(phases)}: {counted(len(phase), 'partition')}")
        try:
            outcomes = _start(run, phase, plan, rate=rate, records=records, key=key, report=report)
            started = [move for move in phase if outcomes[move.tp].is_done]
            rows |= {move.tp: plan_row(move, STARTED, outcomes[move.tp]) for move in phase}
            if choices.wait and started:
                situation = _watch(run, started, rate)
                rows |= {move.tp: _ended_row(rows[move.tp], move, situation) for move in started}
        except BaseException as error:
            _note_left(run, phases[number:])
            if rate is not None and not started and _is_refusal(error):
                restore_after_failure(run, records, key)
            elif rate is not None:
                warn_throttle_stays(run, rate, choices.state_dir)
            raise
        if any(rows[move.tp].error for move in phase):
            _note_left(run, phases[number:])
            break
    all_restored = True
    if rate is not None and (choices.wait or not any(move.is_change for move in started)):
        restored = restore(run, records, [key])
        report.throttles_cleared(restored)
        all_restored = not restored.failed
    elif rate is not None:
        run.console.note("the throttle stays until 'kctl reassign verify' finds the partitions moved")
    shown = list(rows.values())
    report.show(run, PlanRow, shown)
    return run.status_of(shown) if all_restored else ExitStatus.FAILED


def _ended_row(row: PlanRow, move: Move, situation: Situation) -> PlanRow:
    return row._replace(status=situation.state_of(move).value, **end_error(move, situation))


def _note_left(run: Invocation, phases: Sequence[Sequence[Move]]) -> None:
    """Show how many partitions were not tried."""
    if left := sum(map(len, phases)):
        run.console.note(f"not started in later phases: {counted(left, 'partition')}; the same command continues")


def refuse_beside_others(
    ongoing: Collection[TopicPartition], same: Collection[TopicPartition], report: Report, *, additional: bool
) -> None:
    """Raise Refused if partitions other than `same` are being moved, as Kafka does; a move may be repeated."""
    others = [str(tp) for tp in ongoing if tp not in same]
    if not others or additional:
        return
    report.refused()
    raise Refused(
        f"{counted(len(others), 'partition is', 'partitions are')} being moved already ({others[0]}, ...): wait, or use"
        " --additional"
    )


def _start(
    run: Invocation,
    phase: Sequence[Move],
    plan: Sequence[Move],
    *,
    rate: int | None,
    records: ThrottleRecords,
    key: str,
    report: Report,
) -> dict[TopicPartition, Outcome]:
    """Set the throttle of the whole plan, then start the moves of a phase that change something.

    Between two phases another command may have removed the throttle, because no partition was moving.
    """

    async def query(client: ClusterClient) -> dict[TopicPartition, Outcome]:
        if rate is None:
            return await start_moves(client, phase)
        # Locked until the moves have started: `verify` would remove the throttle as one of a move that has ended.
        with records.locked():
            await throttle(run, client, records, key, plan, rate)
            report.throttle_set(rate)
            return await start_moves(client, phase)

    report.starting(phase)
    outcomes = run.on_brokers(query)
    report.started(phase, outcomes)
    return outcomes


def _watch(run: Invocation, started: Sequence[Move], rate: int | None) -> Situation:
    """Wait until the moves have ended; after an interruption, print that the brokers continue.

    Warns once if the partitions grow as fast as they are copied.
    """
    has_warned = False
    try:
        with run.console.progress("moved", unit="bytes") as progress:

            def show(estimate: Estimate) -> None:
                nonlocal has_warned
                if estimate.never_ends and not has_warned:
                    has_warned = True
                    run.console.warn(_endless(estimate, rate))
                progress.update(estimate.moved_bytes, total=estimate.total_bytes, note=_pace(estimate))

            return run.on_cluster_concurrently(lambda client: wait_for_moves(client, started, show))
    except KeyboardInterrupt:
        names = ", ".join(str(move.tp) for move in started if move.is_change)
        run.console.note(
            f"stopped waiting; the brokers continue to move {names}; 'kctl reassign cancel' cancels the moves"
        )
        run.changes = None
        raise


def _pace(estimate: Estimate) -> str:
    if estimate.bytes_per_s is None:
        return ""
    pace = f"{round(estimate.bytes_per_s):,} bytes/s"
    if estimate.remaining_ms is None:
        return f"{pace}, remaining time unknown"
    return f"{pace}, {duration_text(estimate.remaining_ms)} left"


def _endless(estimate: Estimate, rate: int | None) -> str:
    copied, grown = round(estimate.bytes_per_s or 0), round(estimate.growth_bytes_per_s or 0)
    text = f"the partitions grow by {grown:,} bytes/s and are copied at {copied:,} bytes/s, so the move does not end"
    if rate is None:
        return text
    return f"{text} with a throttle of {rate:,} bytes/s: execute the same move again with a larger --throttle"


def _is_refusal(error: BaseException) -> bool:
    """Return whether brokers refused the request, so that nothing has started; after other errors it may have."""
    return isinstance(error, ApiError) and error.code not in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}


def _save_rollback(run: Invocation, plan: Sequence[Move], folder: Path, key: str, requested: Path | None) -> None:
    """Write the reverse reassignment to a new file, and to `requested`.  Raises Refused if that exists.

    An ongoing move already has its file, which contains the only record of the previous order of replicas.
    """
    changing = [move for move in plan if move.is_change and not move.is_under_way]
    if not changing:
        return
    text = format_reassignment(rollback(changing), rollback_log_dirs(changing)) + "\n"
    if requested is not None:
        requested.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_new(requested, text)
        except FileExistsError:
            raise Refused(f"{requested} exists and is not overwritten: give another --rollback-file") from None
    remembered = save_rollback(folder, key, text)
    path = requested or remembered
    run.console.note(f"to undo: kctl reassign execute {shlex.quote(str(path))}{run.cluster_options()}")
