"""`kctl reassign`: move partitions to other brokers, with a throttle that is given back."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kctl.commands.declaration import Argument, Group, Option
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.invocation import Invocation
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.input_files import read_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.move_progress import Estimate
    from kctl.admin.outcome import Outcome
    from kctl.admin.reassigning import Situation
    from kctl.admin.reassignment_plan import Move
    from kctl.admin.reassignment_spec import Assignment, LogDirTargets
    from kctl.admin.throttle_records import ThrottleRecords
    from kctl.admin.throttling import Restored
    from kctl.client.cluster import ClusterClient
    from kctl.model import TopicPartition

app = Group("reassign", "Move partitions to other brokers.")

COMPATS = ("kafka-2.8", "kafka-4")

JsonFile = Annotated[
    str | None,
    Option(
        "--reassignment-json-file",
        metavar="FILE",
        help="Kafka's JSON: partitions and their replicas.",
        complete="file",
    ),
]
Compat = Annotated[
    str | None,
    Option("--compat", choices=COMPATS, help="Print what Kafka's own tool of that version prints, instead of rows."),
]
StateDir = Annotated[
    str | None,
    Option(
        "--state-dir",
        metavar="DIR",
        help="Where throttles that are set are remembered.  Default: kctl/reassign under XDG_STATE_HOME, which is"
        " ~/.local/state.",
        complete="directory",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done and do nothing.")]


@app.command(
    "execute",
    cluster=True,
    examples=(
        "kctl reassign execute --reassignment-json-file moves.json --dry-run",
        "kctl reassign execute --reassignment-json-file moves.json --throttle 50m --wait",
        "kctl reassign execute orders:0=1,2,3 orders:1=2,3,1",
    ),
)
def execute(
    run: Invocation,
    moves: Annotated[
        list[str] | None,
        Argument("Instead of a file: partitions and their replicas, the preferred leader first.", metavar="T:P=B,B"),
    ] = None,
    *,
    reassignment_json_file: JsonFile = None,
    throttle: Annotated[
        str | None,
        Option(
            "--throttle",
            metavar="BYTES_PER_S",
            help="What each broker may copy, such as 50m.  What was set before comes back when the move ends.",
        ),
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Stay until the partitions have moved; shows progress.")] = False,
    additional: Annotated[
        bool, Option("--additional", help="Go on although other partitions are being moved already.")
    ] = False,
    rollback_file: Annotated[
        str | None,
        Option(
            "--rollback-file",
            metavar="FILE",
            help="A new file that gets the reassignment that leads back, beside rollback-*.json in --state-dir.",
            complete="file",
        ),
    ] = None,
    state_dir: StateDir = None,
    dry_run: DryRun = False,
    compat: Compat = None,
) -> ExitStatus:
    """Move partitions to other brokers, put their replicas in another order, or move replicas between log directories.

    A file may name under "log_dirs" the log directory of each replica, or "any"; 'kctl cluster log-dirs' lists them.

    Nothing is moved unless all of it can be.  A throttle is set for the brokers and topics of this move only.  What was
    set before is remembered in a file and comes back when the move has ended.  Without --wait, and when this command is
    interrupted or loses the cluster while it waits, the throttle stays; 'kctl reassign verify' restores what was set
    before once the partitions have moved.

    Executing a move that is under way once more with another throttle changes the throttle.
    """
    from kctl.admin.reassigning import look  # noqa: PLC0415 - help needs no client
    from kctl.admin.throttle_records import key_of  # noqa: PLC0415 - same
    from kctl.commands.reassign_rows import PLAN_COLUMNS, STARTED, WOULD_MOVE, end_error, plan_row  # noqa: PLC0415
    from kctl.commands.reassign_throttle import (  # noqa: PLC0415 - same
        records_of,
        restore,
        restore_after_failure,
        tell_kept,
    )

    targets, log_dirs = _targets(moves, reassignment_json_file), _log_dirs(reassignment_json_file)
    if targets is None:
        raise UsageError("nothing to move; give --reassignment-json-file, or moves such as orders:0=1,2,3")
    rate = _rate(throttle)
    situation = run.on_brokers(lambda client: look(client, targets, log_dirs))
    plan = situation.moves
    _tell_cost(run, plan, rate)
    if dry_run or any(move.problem for move in plan):
        rows = [plan_row(move, WOULD_MOVE) for move in plan]
        run.console.show(PLAN_COLUMNS, rows)
        return run.status_of(rows)
    _refuse_beside_others(run, situation, additional=additional, compat=compat)
    records = records_of(state_dir, situation.metadata.cluster_id)
    key = key_of(targets)
    _save_rollback(run, plan, records.folder, key, Path(rollback_file) if rollback_file else None)
    try:
        outcomes = _start(run, plan, rate=rate, records=records, key=key, compat=compat)
    except BaseException as error:
        if rate is not None and _is_refusal(error):
            restore_after_failure(run, records, key)
        elif rate is not None:
            tell_kept(run, rate, state_dir)
        raise
    started = [move for move in plan if outcomes[move.tp].is_done]
    if wait and started:
        try:
            situation = _watch(run, started)
        except BaseException:
            if rate is not None:
                tell_kept(run, rate, state_dir)
            raise
    all_restored = True
    if rate is not None and (wait or not any(move.is_change for move in started)):
        all_restored = _say_cleared(run, restore(run, records, [key]), compat)
    elif rate is not None:
        run.console.note("the throttle stays until 'kctl reassign verify' finds the partitions moved")
    rows = [plan_row(move, STARTED, outcomes[move.tp]) for move in plan]
    if wait:
        for row, move in zip(rows, plan, strict=True):
            if move in started:
                row |= {"status": situation.state_of(move).value, **end_error(move, situation)}
    if not compat:
        run.console.show(PLAN_COLUMNS, rows)
    return run.status_of(rows) if all_restored else ExitStatus.FAILED


@app.command(
    "status",
    cluster=True,
    examples=("kctl reassign status", "kctl reassign status --reassignment-json-file moves.json --format json"),
)
def status(
    run: Invocation,
    moves: Annotated[
        list[str] | None, Argument("Instead of a file: partitions and their replicas.", metavar="T:P=B,B")
    ] = None,
    *,
    reassignment_json_file: JsonFile = None,
    state_dir: StateDir = None,
) -> ExitStatus:
    """Show how far moves are; of everything that moves when none is named.

    Changes nothing.  Exit status 3 while anything of it moves, 1 for a partition that neither is where it should be nor
    on its way there.
    """
    from kctl.admin.reassigning import look_settled  # noqa: PLC0415 - help needs no client
    from kctl.admin.throttling import finished_keys  # noqa: PLC0415 - same
    from kctl.commands.reassign_throttle import records_of  # noqa: PLC0415 - same

    targets, log_dirs = _targets(moves, reassignment_json_file), _log_dirs(reassignment_json_file)
    situation = run.on_brokers(lambda client: look_settled(client, targets, log_dirs))
    if finished_keys(records_of(state_dir, situation.metadata.cluster_id), situation.ongoing.keys()):
        run.console.note("a move has ended and its throttle is still set; 'kctl reassign verify' restores it")
    return _show_states(run, situation, compat=None)


@app.command(
    "verify",
    cluster=True,
    examples=(
        "kctl reassign verify --reassignment-json-file moves.json",
        "until kctl reassign verify orders:0=1,2,3; do sleep 10; done",
    ),
)
def verify(
    run: Invocation,
    moves: Annotated[
        list[str] | None, Argument("Instead of a file: partitions and their replicas.", metavar="T:P=B,B")
    ] = None,
    *,
    reassignment_json_file: JsonFile = None,
    state_dir: StateDir = None,
    compat: Compat = None,
) -> ExitStatus:
    """Check whether moves are complete, and restore the throttles of those that have ended.

    Only throttles that 'kctl reassign execute' has set are touched, also those of a command that crashed.  Exit status
    3 while anything of it moves, 1 for a partition that neither is where it should be nor on its way there.
    """
    from kctl.admin.reassigning import look_settled  # noqa: PLC0415 - help needs no client
    from kctl.commands.reassign_throttle import records_of, restore_finished  # noqa: PLC0415 - same

    targets, log_dirs = _targets(moves, reassignment_json_file), _log_dirs(reassignment_json_file)
    situation = run.on_brokers(lambda client: look_settled(client, targets, log_dirs))
    records = records_of(state_dir, situation.metadata.cluster_id)
    restored = restore_finished(run, records, situation.ongoing.keys())
    ended = _show_states(run, situation, compat)
    return ended if _say_cleared(run, restored, compat) else ExitStatus.FAILED


@app.command(
    "cancel",
    cluster=True,
    examples=("kctl reassign cancel --reassignment-json-file moves.json", "kctl reassign cancel orders:0 orders:1"),
)
def cancel(
    run: Invocation,
    partitions: Annotated[list[str] | None, Argument("Instead of a file: partitions.", metavar="T:P")] = None,
    *,
    reassignment_json_file: JsonFile = None,
    all_: Annotated[bool, Option("--all", help="Everything that moves.")] = False,
    state_dir: StateDir = None,
    dry_run: DryRun = False,
    compat: Compat = None,
) -> ExitStatus:
    """Take moves back that are under way, and restore their throttles.

    The replicas that were added go, and those that were to be removed stay, in the order that they had before if 'kctl
    reassign execute' has remembered it in --state-dir; a replica on its way to another log directory stays where it is.
     A file means the log directories that it names.  A partition that does not move is
    left as it is, which is no failure.
    """
    from kctl.admin.log_dirs import move_replicas  # noqa: PLC0415 - help needs no client
    from kctl.admin.reassigning import cancel_moves, find_copies, look  # noqa: PLC0415 - same
    from kctl.admin.rollback_files import original_order  # noqa: PLC0415 - same
    from kctl.commands import reassign_compat  # noqa: PLC0415 - same
    from kctl.commands.reassign_rows import CANCEL_COLUMNS, cancel_row  # noqa: PLC0415 - same
    from kctl.commands.reassign_throttle import records_of, restore_finished  # noqa: PLC0415 - same

    targets = _targets(partitions, reassignment_json_file, with_replicas=False)
    if (targets is None) is not all_:
        raise UsageError("say what to cancel: --reassignment-json-file, partitions such as orders:0, or --all")
    situation = run.on_brokers(lambda client: look(client, None))
    copies = run.on_brokers(lambda client: find_copies(client, targets))
    if reassignment_json_file:
        named = _log_dirs(reassignment_json_file)
        copies = {replica: path for replica, path in copies.items() if replica in named}
    copied = {tp for _, tp in copies}
    wanted = sorted({*situation.ongoing, *copied} if targets is None else targets)
    active = [tp for tp in wanted if tp in situation.ongoing]
    records = records_of(state_dir, situation.metadata.cluster_id)
    origins = {tp: original_order(records.folder, tp, situation.ongoing[tp].origin) for tp in active}
    outcomes = {} if dry_run else run.on_brokers(lambda client: cancel_moves(client, origins))
    if not dry_run and copies:
        stayed = run.on_brokers(lambda client: move_replicas(client, copies))
        outcomes |= {tp: outcome for (_, tp), outcome in stayed.items() if not outcome.is_done}
    done = "would be cancelled" if dry_run else "cancelled"
    moves = {*active, *copied}
    rows = [cancel_row(tp, done if tp in moves else "does not move", outcomes.get(tp)) for tp in wanted]
    failed = {tp: outcome.message for tp, outcome in outcomes.items() if not outcome.is_done}
    restored = None
    if not dry_run:
        moving = [tp for tp in situation.ongoing if tp not in active or tp in failed]
        restored = restore_finished(run, records, moving)
    if not compat:
        run.console.show(CANCEL_COLUMNS, rows)
    elif failed:
        run.console.verbatim(reassign_compat.cancel_refused(failed.items()))
    else:
        run.console.verbatim(reassign_compat.cancelled(compat, active, copies))
    return run.status_of(rows) if restored is None or _say_cleared(run, restored, compat) else ExitStatus.FAILED


@app.command("list", cluster=True, examples=("kctl reassign list", "kctl reassign list --format json"))
def list_moves(run: Invocation, *, compat: Compat = None) -> ExitStatus:
    """List the partitions that are being moved, whoever moves them."""
    from kctl.admin.reassignment import list_reassignments  # noqa: PLC0415 - help needs no client
    from kctl.commands import reassign_compat  # noqa: PLC0415 - same
    from kctl.commands.reassign_rows import LIST_COLUMNS, list_row  # noqa: PLC0415 - same

    ongoing = run.on_brokers(list_reassignments)
    if compat:
        run.console.verbatim(reassign_compat.listed(ongoing))
    else:
        run.console.show(LIST_COLUMNS, [list_row(tp, one) for tp, one in ongoing.items()])
    return ExitStatus.DONE


def _targets(texts: list[str] | None, path: str | None, *, with_replicas: bool = True) -> Assignment | None:
    """What was asked for, in a file or in words; None when it was neither."""
    from kctl.admin.reassignment_spec import parse_inline, parse_reassignment  # noqa: PLC0415 - help needs no client

    if texts and path:
        raise UsageError("give --reassignment-json-file or partitions, not both")
    if texts:
        try:
            return parse_inline(texts, with_replicas=with_replicas)
        except UsageError:
            file = next((text for text in texts if Path(text).is_file()), None)
            if file is None:
                raise
            raise UsageError(f"'{file}' is a file; give it as --reassignment-json-file {file}") from None
    if path is None:
        return None
    try:
        return parse_reassignment(_document(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None


def _log_dirs(path: str | None) -> LogDirTargets:
    """The log directories that the file asks for, which has been read before."""
    from kctl.admin.reassignment_spec import parse_log_dirs  # noqa: PLC0415 - help needs no client

    return parse_log_dirs(_document(path)) if path else {}


@functools.cache
def _document(path: str) -> str:
    """The text of the file, read once: what comes through a pipe cannot be read twice."""
    return read_input(path).decode()


def _rate(throttle: str | None) -> int | None:
    from kctl.commands.values import parse_size  # noqa: PLC0415 - help needs it not

    if throttle is None:
        return None
    rate = parse_size(throttle)
    if rate == 0:
        raise UsageError("--throttle 0 would keep the partitions from ever moving")
    return rate


def _refuse_beside_others(run: Invocation, situation: Situation, *, additional: bool, compat: str | None) -> None:
    """As Kafka does: two moves at once are asked for, and giving one that is under way once more is not two."""
    same = {move.tp for move in situation.moves if move.is_under_way}
    others = [str(tp) for tp in situation.ongoing if tp not in same]
    if not others or additional:
        return
    if compat:
        from kctl.commands.reassign_compat import EXISTING  # noqa: PLC0415 - rarely needed

        run.console.verbatim(EXISTING)
    raise Refused(f"{len(others)} partitions are being moved already ({others[0]}, ...): wait, or use --additional")


def _start(
    run: Invocation, plan: Sequence[Move], *, rate: int | None, records: ThrottleRecords, key: str, compat: str | None
) -> dict[TopicPartition, Outcome]:
    """Set the throttle, then start what changes anything."""
    from kctl.admin.reassigning import start_moves  # noqa: PLC0415 - help needs no client
    from kctl.admin.reassignment_plan import rollback  # noqa: PLC0415 - same
    from kctl.commands import reassign_compat  # noqa: PLC0415 - same
    from kctl.commands.reassign_throttle import throttle  # noqa: PLC0415 - same

    say = run.console.verbatim if compat else lambda _: None

    async def ask(client: ClusterClient) -> dict[TopicPartition, Outcome]:
        if rate is None:
            return await start_moves(client, plan)
        # Locked until the partitions are on their way: a `verify` in between would take the throttle for a left-over.
        with records.locked():
            await throttle(run, client, records, key, plan, rate)
            say(reassign_compat.throttle_set(rate))
            return await start_moves(client, plan)

    say(reassign_compat.current_assignment(rollback(plan)))
    outcomes = run.on_brokers(ask)
    refused = {tp: outcome.message for tp, outcome in outcomes.items() if not outcome.is_done}
    say(reassign_compat.start_refused(refused.items()) if refused else reassign_compat.started(outcomes))
    sent = {(broker, move.tp): path for move in plan for broker, path in move.log_dirs if move.tp not in refused}
    say(reassign_compat.log_dir_moves_started(compat or "", sent))
    return outcomes


def _watch(run: Invocation, started: Sequence[Move]) -> Situation:
    """Wait until the moves have ended; an interruption says what goes on without us."""
    from kctl.admin.reassigning import wait_for_moves  # noqa: PLC0415 - help needs no client

    try:
        with run.console.progress("moved", unit="bytes") as progress:

            def show(estimate: Estimate) -> None:
                progress.update(estimate.moved_bytes, total=estimate.total_bytes, note=_pace(estimate))

            return run.on_cluster_concurrently(lambda client: wait_for_moves(client, started, show))
    except KeyboardInterrupt:
        names = ", ".join(str(move.tp) for move in started if move.is_change)
        run.console.note(f"no longer waiting, but the brokers go on moving {names}; 'kctl reassign cancel' stops that")
        raise


def _pace(estimate: Estimate) -> str:
    if estimate.bytes_per_s is None:
        return ""
    pace = f"{round(estimate.bytes_per_s):,} bytes/s"
    if estimate.remaining_ms is None:
        return f"{pace}, no end in sight"
    return f"{pace}, {_duration(estimate.remaining_ms)} left"


def _tell_cost(run: Invocation, plan: Sequence[Move], rate: int | None) -> None:
    """What the plan copies, and how long that takes at least."""
    from kctl.admin.move_progress import move_duration_ms  # noqa: PLC0415 - help needs no client
    from kctl.admin.reassignment_plan import bytes_by_broker  # noqa: PLC0415 - same

    incoming, outgoing = bytes_by_broker(plan)
    total = sum(move.bytes_to_move or 0 for move in plan if not move.problem)
    replicas = sum(len(move.adding) + len(move.relocating) for move in plan if not move.problem)
    text = f"{replicas} replica{'' if replicas == 1 else 's'} to copy, {total:,} bytes"
    if rate is not None and incoming:
        busiest = max(*incoming.values(), *outgoing.values())
        text += f", at least {_duration(move_duration_ms(busiest, rate))} with this throttle"
    run.console.note(text)


def _duration(duration_ms: int) -> str:
    seconds = -(-duration_ms // 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds % 60:02}s" if minutes else f"{seconds}s"


def _is_refusal(error: BaseException) -> bool:
    """Whether brokers have said no, so that nothing has been started; after anything else it may have been."""
    return isinstance(error, ApiError) and error.code not in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}


def _save_rollback(run: Invocation, plan: Sequence[Move], folder: Path, key: str, wanted: Path | None) -> None:
    """Write what leads back to a new file, and to `wanted`.  Raises Refused when that one exists.

    A move that is under way has its file already, with an order of replicas that nobody knows any more.
    """
    from kctl.admin.reassignment_plan import rollback, rollback_log_dirs  # noqa: PLC0415 - help needs no client
    from kctl.admin.reassignment_spec import format_reassignment  # noqa: PLC0415 - same
    from kctl.admin.rollback_files import save_rollback, write_new  # noqa: PLC0415 - same

    changing = [move for move in plan if move.is_change and not move.is_under_way]
    if not changing:
        return
    text = format_reassignment(rollback(changing), rollback_log_dirs(changing)) + "\n"
    if wanted is not None:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_new(wanted, text)
        except FileExistsError:
            raise Refused(f"{wanted} exists and is not overwritten: give another --rollback-file") from None
    remembered = save_rollback(folder, key, text)
    path = wanted or remembered
    run.console.note(f"the way back: kctl reassign execute --reassignment-json-file {path}")


def _show_states(run: Invocation, situation: Situation, compat: str | None) -> ExitStatus:
    from kctl.admin.reassignment_plan import MoveState  # noqa: PLC0415 - help needs no client
    from kctl.commands import reassign_compat  # noqa: PLC0415 - same
    from kctl.commands.reassign_rows import STATE_COLUMNS, state_row  # noqa: PLC0415 - same

    rows = [state_row(move, situation) for move in situation.moves]
    states = {move: situation.state_of(move) for move in situation.moves}
    if compat:
        found = [
            (move.tp, situation.partition_state_of(move), situation.replicas_of(move), move.target) for move in states
        ]
        replicas = {(broker, move.tp): path for move in situation.moves for broker, path in move.log_dirs}
        run.console.verbatim(reassign_compat.states(compat, found, replicas, situation.sizes))
    else:
        run.console.show(STATE_COLUMNS, rows)
    if run.status_of(rows) is not ExitStatus.DONE:
        return ExitStatus.FAILED
    return ExitStatus.UNMET if MoveState.IN_PROGRESS in states.values() else ExitStatus.DONE


def _say_cleared(run: Invocation, restored: Restored, compat: str | None) -> bool:
    """Whether nothing is left to be restored."""
    from kctl.commands.reassign_compat import throttles_cleared  # noqa: PLC0415 - rarely needed

    if compat:
        run.console.verbatim(throttles_cleared(restored.brokers, restored.topics))
    return not restored.failed
