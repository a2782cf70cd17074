"""Rules about groups and transactions: who does not read on, and what keeps him.  Pure."""

from __future__ import annotations

from kctl.admin.doctor.findings import Finding, Findings, Severity, command, listed
from kctl.admin.doctor.snapshot import GroupState, Snapshot, TransactionState
from kctl.output.quantities import counted, format_duration

SEVERITIES = {
    "LOSING": Severity.CRITICAL,
    "STOPPED": Severity.ERROR,
    "STALLED": Severity.ERROR,
    "REWOUND": Severity.WARNING,
    "WARN": Severity.WARNING,
}
"""By the name of a verdict (kctl.lag.rules.Verdict)."""
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
LONG_TRANSACTION_MS = 300_000
ENDED_LATE_MS = 60_000
"""A coordinator ends a transaction within this time after its timeout."""


def groups(snapshot: Snapshot) -> Findings:
    """Yield the groups that lose records, stopped, stand still or are behind, each with the reason that the snapshot
    shows.
    """
    for group in snapshot.groups:
        if group.error is not None:
            continue
        blocking = _blocking(snapshot, group)
        severity = SEVERITIES.get(group.verdict)
        if severity is None and group.members == 0 and group.unread:
            severity = Severity.WARNING
        if blocking is not None:
            severity = max(severity or Severity.ERROR, Severity.ERROR)
        if severity is not None:
            yield _behind(group, severity, blocking)
        if group.uncommitted_records:
            yield Finding(
                severity=Severity.WARNING,
                subject=f"group {group.group_id}",
                cause=f"group {group.group_id} has no committed offset in "
                f"{counted(group.uncommitted_partitions, 'partition')} with "
                f"{counted(group.uncommitted_records, 'record')}: auto.offset.reset decides where it reads, "
                "and may skip them",
                look=command("groups", "lag", group.group_id, "--by", "partition"),
                repair="commit offsets: 'kctl groups reset-offsets' while no member runs",
                impact=group.uncommitted_records,
            )
        if group.state in REBALANCING:
            yield Finding(
                severity=Severity.NOTE,
                subject=f"group {group.group_id}",
                cause=f"group {group.group_id} is rebalancing ({group.state}) with "
                f"{counted(group.members, 'member')}; if it stays so, a member does not poll in time",
                look=command("groups", "describe", group.group_id),
            )


def _behind(group: GroupState, severity: Severity, blocking: TransactionState | None) -> Finding:
    place = ""
    if group.topic is not None and group.committed is not None:
        place = f" at offset {group.committed} of {group.topic}-{group.partition}"
    unread = f"{counted(group.unread, 'unread record')}" if group.unread else ""
    if blocking is not None:
        who = blocking.transactional_id or f"producer {blocking.producer_id}"
        since = "" if blocking.idle_ms is None else f", idle for {format_duration(blocking.idle_ms)}"
        return Finding(
            severity=severity,
            subject=f"group {group.group_id}",
            cause=f"group {group.group_id} waits at offset {blocking.start_offset} of {blocking.tp} for the end of a "
            f"transaction of {who}{since}",
            evidence=tuple(text for text in (unread, group.reason) if text),
            look=_look_at(blocking),
            repair=_end_of(blocking),
            impact=group.unread,
        )
    members = f"{counted(group.members, 'member')}: {listed(group.client_ids)}" if group.members else ""
    stopped = group.verdict in {"STOPPED", "OK", "WARN"} and group.members == 0
    state = {
        "LOSING": "loses records",
        "STALLED": f"stands still{place}",
        "REWOUND": "was set back",
        "WARN": "is behind" if group.members else "has no member",
    }.get(group.verdict, "has stopped")
    remedies = {
        "LOSING": "raise retention.ms of the topic now ('kctl configs alter topic'), then make the group faster",
        "STALLED": f"look at the record{place} ('kctl consume'), and at the log of the member that is assigned the "
        "partition",
        "REWOUND": "if this was not intended: 'kctl groups restore' sets earlier offsets",
    }
    return Finding(
        severity=severity,
        subject=f"group {group.group_id}",
        cause=f"group {group.group_id} {state}" + (f": {group.reason}" if group.reason else ": no member reads"),
        evidence=tuple(text for text in (unread, members) if text),
        look=command("groups", "lag", group.group_id, "--by", "partition"),
        repair="start its application, or delete the group if it is not needed any more ('kctl groups delete')"
        if stopped
        else remedies.get(group.verdict, "add members up to the number of partitions, or make them faster"),
        impact=group.unread,
    )


def _blocking(snapshot: Snapshot, group: GroupState) -> TransactionState | None:
    """Return the transaction at whose first offset the group has stopped."""
    places = {(topic, partition): committed for topic, partition, committed in group.lag_partitions}
    for transaction in snapshot.transactions:
        if places.get((transaction.topic, transaction.partition)) == transaction.start_offset:
            return transaction
    return None


def transactions(snapshot: Snapshot) -> Findings:
    """Open transactions that no coordinator will end, and those that stay open for long."""
    for transaction in snapshot.transactions:
        count = counted(transaction.blocked_records, "record")
        blocked = f"{count} of {transaction.tp} are not shown to readers of committed records"
        idle = "" if transaction.idle_ms is None else f", idle for {format_duration(transaction.idle_ms)}"
        who = f"producer {transaction.producer_id}" + (
            f" ({transaction.transactional_id})" if transaction.transactional_id else ""
        )
        if transaction.state is None:
            if not transaction.is_owner_known or (
                transaction.idle_ms is not None and transaction.idle_ms < ENDED_LATE_MS
            ):
                continue
            yield Finding(
                severity=Severity.ERROR,
                subject=str(transaction.tp),
                cause=f"a transaction of {who} hangs in {transaction.tp}: no coordinator will end it",
                evidence=(f"first offset {transaction.start_offset}{idle}", blocked),
                look=_look_at(transaction),
                repair=_end_of(transaction),
                impact=transaction.blocked_records,
            )
            continue
        running_ms, timeout_ms = transaction.running_ms or 0, transaction.timeout_ms or 0
        is_overdue = timeout_ms > 0 and running_ms > timeout_ms + ENDED_LATE_MS
        if running_ms < LONG_TRANSACTION_MS and not is_overdue:
            continue
        yield Finding(
            severity=Severity.ERROR if is_overdue else Severity.WARNING,
            subject=str(transaction.tp),
            cause=f"a transaction of {who} has been open for {format_duration(running_ms)}"
            + (f", longer than its timeout of {format_duration(timeout_ms)}" if is_overdue else ""),
            evidence=(f"state {transaction.state}{idle}", blocked),
            look=_look_at(transaction),
            repair=_end_of(transaction),
            impact=transaction.blocked_records,
        )


def _look_at(transaction: TransactionState) -> str:
    if transaction.transactional_id is not None:
        return command("transactions", "describe", transaction.transactional_id)
    return command(
        "transactions", "find-hanging", "--topic", f"{transaction.topic}:{transaction.partition}", "--idle", "1s"
    )


def _end_of(transaction: TransactionState) -> str:
    if transaction.state is None and transaction.is_owner_known:
        place = f"{transaction.topic}:{transaction.partition}"
        return command("transactions", "abort", place, "--start-offset", str(transaction.start_offset), "--dry-run")
    who = (
        f"with transactional.id={transaction.transactional_id}"
        if transaction.transactional_id
        else f"with id {transaction.producer_id}"
    )
    return (
        f"restart the producer {who}: its start ends the transaction; else its coordinator aborts it after its timeout"
    )
