"""Rules about clients: requests that Kafka 4 does not accept, and quotas that throttle.  Pure."""

from __future__ import annotations

from collections import defaultdict

from kctl.admin.doctor.findings import Finding, Findings, Severity, command, listed, named
from kctl.admin.doctor.snapshot import Snapshot
from kctl.output.quantities import counted, format_duration

_WORK = {"produce": "Produce requests", "fetch": "Fetch requests", "request": "requests of any kind"}


def old_clients(snapshot: Snapshot) -> Findings:
    """Find versions of requests that brokers of Kafka 4 do not accept (KIP-896)."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    ids = set()
    for request in snapshot.old_requests:
        counts[request.api, request.version] += request.count
        ids.add(request.broker_id)
    if not counts:
        return
    software: dict[tuple[str, str], int] = defaultdict(int)
    for client in snapshot.clients:
        software[client.name, client.version] += client.connections
    evidence = [
        f"{api} version {version}: {counted(count, 'request')} since the start of {named('broker', ids)}"
        for (api, version), count in sorted(counts.items(), key=lambda item: -item[1])[:5]
    ]
    if software:
        names = listed(f"{name} {version} ({count})" for (name, version), count in sorted(software.items()))
        evidence.append(f"software of the open connections: {names}")
    yield Finding(
        severity=Severity.NOTE,
        subject="clients",
        cause="clients send versions of requests that brokers of Kafka 4 refuse: they are older than Kafka 2.1",
        evidence=tuple(evidence),
        look=command("metrics", "show", "--match", "requestmetrics_requests"),
        repair="upgrade these clients before the brokers",
        impact=sum(counts.values()),
    )


def throttled_clients(snapshot: Snapshot) -> Findings:
    """Find clients that wait because of a quota."""
    for client in snapshot.throttled:
        parts = [("--user", client.user), ("--client-id", client.client_id)]
        words = [word for option, name in parts if name for word in (option, name)]
        who = " and ".join(f"{option.removeprefix('--').replace('-', ' ')} '{name}'" for option, name in parts if name)
        yield Finding(
            severity=Severity.WARNING,
            subject=f"quota of {who}" if who else "quota",
            cause=f"a quota throttles {who or 'clients'}: {_WORK.get(client.kind, 'requests')} wait "
            f"{format_duration(round(client.mean_ms))} on the average",
            evidence=(f"measured by broker {client.broker_id}, of the requests that were throttled lately",),
            look=command("quotas", "check", *words) if words else command("quotas", "describe"),
            repair="raise the quota ('kctl quotas alter'), or let the client send or read less",
            impact=round(client.mean_ms),
        )


_RESOURCES = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
    "DelegationToken": "--delegation-token",
    "Cluster": "--cluster",
}
ANY_NAME = "(any)"
"""The name of a resource if write on any topic would have been enough (KIP-679)."""


def denials(snapshot: Snapshot) -> Findings:
    """Find operations that authorizers have denied; whether that is intended only the administrator knows."""
    times: dict[tuple[str, str, str, str], int] = defaultdict(int)
    ids: dict[tuple[str, str, str, str], set[int]] = defaultdict(set)
    for denial in snapshot.denied:
        key = (denial.principal, denial.operation, denial.resource_type, denial.resource_name)
        times[key] += denial.times
        ids[key].add(denial.broker_id)
    for (principal, operation, kind, name), count in times.items():
        option = _RESOURCES.get(kind)
        if option is None or name == ANY_NAME:
            continue
        resource = [option] if option == "--cluster" else [option, name]
        target = "cluster" if option == "--cluster" else f"{kind.lower()}:{name}" if kind != "Topic" else name
        what = "the cluster" if option == "--cluster" else f"{kind} {name}"
        yield Finding(
            severity=Severity.NOTE,
            subject=principal,
            cause=f"{principal} was denied {operation} on {what}, {counted(count, 'time')}",
            evidence=(f"since the start of {named('broker', ids[principal, operation, kind, name])}",),
            look=command("acls", "who-can", operation.lower(), target),
            repair=command("acls", "add", "--allow", principal, "--operation", operation.lower(), *resource),
            impact=count,
        )
