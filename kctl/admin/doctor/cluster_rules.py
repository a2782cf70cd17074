"""Rules about controllers, brokers, their versions, certificates and disks.  Pure."""

from __future__ import annotations

from collections import defaultdict

from kctl.admin.cluster.quorum import NOT_FETCHING_MS
from kctl.admin.doctor.findings import Finding, Findings, Severity, command, listed, named, parts
from kctl.admin.doctor.snapshot import BrokerState, DirectoryState, NodeState, PartitionState, Snapshot
from kctl.admin.placement.log_dirs import LogDir, file_systems_of
from kctl.errors import ErrorCode
from kctl.output.quantities import counted, format_duration, format_size

DAY_MS = 86_400_000
CERTIFICATE_WARNING_MS, CERTIFICATE_ERROR_MS = 30 * DAY_MS, 7 * DAY_MS
FREE_SHARES = ((0.02, Severity.CRITICAL), (0.10, Severity.ERROR), (0.20, Severity.WARNING))
FULL_IN_MS = ((3_600_000, Severity.CRITICAL), (DAY_MS, Severity.ERROR), (7 * DAY_MS, Severity.WARNING))
KRAFT_VERSION = "kraft.version"
"""Its level says whether the quorum is static or dynamic, and not how new it is."""
QUORUM = command("cluster", "quorum")


def quorum(snapshot: Snapshot) -> Findings:
    """Find problems of the metadata quorum of a KRaft cluster: no leader, voters that do not follow, brokers that are
    behind.
    """
    state = snapshot.quorum
    if state is None:
        return
    if state.problem is not None or state.leader_id is None:
        silent = [broker.broker_id for broker in snapshot.brokers if broker.problem is not None]
        hint = f"no response from {named('broker', silent)}: if these are controllers too, start them first"
        yield Finding(
            severity=Severity.CRITICAL,
            subject="metadata quorum",
            cause="the metadata quorum has no leader: nothing can be created, changed or elected, and what brokers say "
            "about topics, leaders and brokers is frozen",
            evidence=(state.problem or "the brokers know no leader", *([hint] if silent else [])),
            look=command("cluster", "describe"),
            repair="start controllers until a majority of the voters runs (controller.quorum.voters or "
            "controller.quorum.bootstrap.servers in their properties), and read their logs",
        )
        return
    voters = [node for node in state.nodes if node.is_voter]
    away = [node for node in voters if node.node_id != state.leader_id and _is_away(node)]
    majority = len(voters) // 2 + 1
    if away:
        spare = len(voters) - len(away) - majority
        yield Finding(
            severity=Severity.ERROR if spare > 0 else Severity.CRITICAL,
            subject=named("controller", [node.node_id for node in away]),
            cause=f"{len(away)} of {len(voters)} voters of the metadata quorum "
            f"{'does' if len(away) == 1 else 'do'} not follow its leader, controller {state.leader_id}"
            + ("" if spare > 0 else ": one more failure of a controller stops every change of the cluster"),
            evidence=tuple(_last_fetch(node) for node in away),
            look=QUORUM,
            repair=f"start {named('controller', [node.node_id for node in away])}, or repair the network between them",
        )
    behind = [node for node in state.nodes if not node.is_voter and _is_away(node)]
    if behind:
        yield Finding(
            severity=Severity.ERROR,
            subject=named("broker", [node.node_id for node in behind]),
            cause=f"{named('broker', [node.node_id for node in behind])} "
            f"{'does' if len(behind) == 1 else 'do'} not follow the metadata log, and will be fenced",
            evidence=tuple(_last_fetch(node) for node in behind),
            look=QUORUM,
            repair="read the logs of these brokers: their connection to the controllers fails",
        )
    if len(voters) == 1 and len(snapshot.brokers) > 1:
        yield Finding(
            severity=Severity.WARNING,
            subject="metadata quorum",
            cause=f"controller {voters[0].node_id} is the only voter: when it fails, nothing can be changed",
            look=QUORUM,
            repair="add controllers, three in all (KIP-853: kafka-metadata-quorum.sh add-controller)",
        )


def _is_away(node: NodeState) -> bool:
    return node.fetched_ms_ago is None or node.fetched_ms_ago > NOT_FETCHING_MS


def _last_fetch(node: NodeState) -> str:
    who = f"node {node.node_id}"
    when = "never" if node.fetched_ms_ago is None else f"{format_duration(node.fetched_ms_ago)} ago"
    lag = "" if node.lag is None else f", {counted(node.lag, 'offset')} behind"
    return f"{who}: last fetch {when}{lag}"


def controller(snapshot: Snapshot) -> Findings:
    """Find a cluster on ZooKeeper without a controller."""
    if snapshot.is_kraft is not False:
        return
    listed_ids = {broker.broker_id for broker in snapshot.brokers if broker.is_listed}
    if listed_ids and snapshot.controller not in listed_ids:
        yield Finding(
            severity=Severity.CRITICAL,
            subject="controller",
            cause="no broker is the controller: no leader is elected, and topics are neither created nor changed",
            evidence=(f"brokers {listed(sorted(listed_ids))} are alive",),
            look=command("cluster", "describe"),
            repair="read the logs of the brokers: one of them becomes the controller when it reaches ZooKeeper",
        )


def brokers(snapshot: Snapshot) -> Findings:
    """Find brokers that are down, do not respond, or do not act, each with everything that follows from it."""
    for broker in snapshot.brokers:
        name = f"broker {broker.broker_id}"
        if not broker.is_listed or broker.problem is not None:
            yield _down(snapshot, broker, name)
        if broker.refuses_to_lead is not None:
            yield Finding(
                severity=Severity.CRITICAL,
                subject=name,
                cause=f"{name} refuses to act as leader, because its registration in ZooKeeper is lost or not verified",
                evidence=(f"it leads {broker.refuses_to_lead} in the metadata, and refuses requests for it",),
                look=command("cluster", "health"),
                repair="repair its connection to ZooKeeper; its log and 'kctl broker status' on its host say more",
            )
        if broker.no_changes is not None:
            yield Finding(
                severity=Severity.CRITICAL,
                subject=name,
                cause=f"{name} cannot change anything in ZooKeeper",
                evidence=(broker.no_changes,),
                look=command("cluster", "health"),
                repair="repair ZooKeeper: its disk, or the connection to it",
            )


def _down(snapshot: Snapshot, broker: BrokerState, name: str) -> Finding:
    offline, refusing, fewer = [], 0, 0
    for topic, partition in snapshot.partitions():
        if broker.broker_id not in partition.replicas:
            continue
        minimum = topic.min_insync_replicas
        if _has_no_leader(snapshot, partition) and broker.broker_id in (
            *(partition.isr or partition.replicas),
            partition.leader,
        ):
            offline.append(f"{topic.name}-{partition.partition}")
        elif minimum is not None and len(_alive_isr(snapshot, partition)) < minimum:
            refusing += 1
        elif broker.broker_id not in partition.isr or not broker.is_listed:
            fewer += 1
    effects = parts((
        (len(offline), "has no leader without it", "have no leader without it"),
        (refusing, "refuses acks=all", "refuse acks=all"),
        (fewer, "has one copy less", "have one copy less"),
    ))  # fmt: skip
    state = "is down" if not broker.is_listed else "is listed as alive, and does not respond"
    evidence = [broker.problem] if broker.problem else []
    if offline:
        evidence.append(f"without a leader: {listed(offline)}")
    return Finding(
        severity=Severity.CRITICAL if offline or refusing else Severity.ERROR,
        subject=name,
        cause=f"{name} {state}" + (f": {effects}" if effects else ""),
        evidence=tuple(evidence),
        look=command("topics", "describe", "--unavailable-partitions" if offline else "--under-replicated-partitions"),
        repair=f"start {name}"
        + ("; if its disk is lost, 'kctl elect --unclean' elects other replicas and loses records" if offline else ""),
        impact=len(offline) + refusing + fewer,
    )


def _has_no_leader(snapshot: Snapshot, partition: PartitionState) -> bool:
    return partition.leader not in snapshot.responding


def _alive_isr(snapshot: Snapshot, partition: PartitionState) -> list[int]:
    return [replica for replica in partition.isr if replica in snapshot.responding]


def versions(snapshot: Snapshot) -> Findings:
    """Find brokers of different versions, and features whose level is behind what all brokers support."""
    by_apis: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
    for broker in snapshot.brokers:
        if broker.apis:
            by_apis[tuple(sorted(broker.apis.items()))].append(broker.broker_id)
    if len(by_apis) > 1:
        tables = [(dict(apis), ids) for apis, ids in by_apis.items()]
        names = sorted({name for apis, _ in tables for name in apis})
        differing = next(name for name in names if len({apis.get(name) for apis, _ in tables}) > 1)
        yield Finding(
            severity=Severity.WARNING,
            subject="versions",
            cause="the brokers support different versions of the protocol: an upgrade has not ended, or one was "
            "forgotten",
            evidence=tuple(
                f"{named('broker', ids)}: {differing} {apis.get(differing, 'missing')}" for apis, ids in tables
            ),
            look=command("cluster", "api-versions"),
            repair="bring all brokers to one version",
        )
    for feature in snapshot.features:
        if (
            feature.name != KRAFT_VERSION
            and feature.supported_max is not None
            # Level 0 is a feature that is not used, which is not behind: a new cluster of kctl has some of them.
            and 0 < feature.finalized < feature.supported_max
        ):
            yield Finding(
                severity=Severity.NOTE,
                subject=f"feature {feature.name}",
                cause=f"all brokers support level {feature.supported_max} of {feature.name}, and {feature.finalized} "
                "is in use",
                look=command("features", "describe"),
                repair=command("features", "upgrade", "--feature", f"{feature.name}={feature.supported_max}"),
            )


def certificates(snapshot: Snapshot) -> Findings:
    """Find certificates of brokers that expire soon."""
    for certificate in snapshot.certificates:
        left_ms = certificate.expires_ms - snapshot.taken_ms
        if left_ms > CERTIFICATE_WARNING_MS:
            continue
        severity = Severity.ERROR if left_ms <= CERTIFICATE_ERROR_MS else Severity.WARNING
        when = f"expires in {format_duration(left_ms)}" if left_ms > 0 else "has expired: clients do not trust it"
        address = next((broker.address for broker in snapshot.brokers if broker.broker_id == certificate.broker_id), "")
        yield Finding(
            severity=Severity.CRITICAL if left_ms <= 0 else severity,
            subject=f"broker {certificate.broker_id}",
            cause=f"the TLS certificate of broker {certificate.broker_id} {when}",
            evidence=(certificate.subject,),
            look=command("tls", "check", address) if address else command("tls", "check"),
            repair="replace its certificate; a broker reads a new key store when its ssl.keystore properties are "
            "altered ('kctl configs alter broker')",
        )


def disks(snapshot: Snapshot) -> Findings:
    """Log directories that are offline, and file systems that fill."""
    for directory in snapshot.directories:
        if directory.error is not None:
            yield Finding(
                severity=Severity.CRITICAL,
                subject=f"broker {directory.broker_id}",
                cause=f"the log directory {directory.path} of broker {directory.broker_id} is offline",
                evidence=(directory.error,),
                look=command("cluster", "log-dirs", "--broker", str(directory.broker_id)),
                repair="repair the disk and restart the broker; its replicas on it are copied from other brokers",
            )
    for directories in _file_systems(snapshot):
        yield from _filling(snapshot, directories)


def _file_systems(snapshot: Snapshot) -> list[list[DirectoryState]]:
    """Return the directories of each broker by file system."""
    directories = {(directory.broker_id, directory.path): directory for directory in snapshot.directories}
    log_dirs = [
        LogDir(
            directory.broker_id,
            directory.path,
            ErrorCode.NONE,
            usable_bytes=directory.usable_bytes,
            total_bytes=directory.total_bytes,
        )
        for directory in snapshot.directories
        if directory.error is None
    ]
    return [
        [directories[file_system.broker_id, path] for path in file_system.paths]
        for file_system in file_systems_of(log_dirs)
    ]


def _filling(snapshot: Snapshot, directories: list[DirectoryState]) -> Findings:
    first = directories[0]
    free = min(directory.usable_bytes or 0 for directory in directories)
    growth = sum(directory.growth_bytes_per_s or 0 for directory in directories)
    full_ms = round(free * 1000 / growth) if growth > 0 else None
    share = free / first.total_bytes if first.total_bytes else None
    by_share = next((severity for limit, severity in FREE_SHARES if share is not None and share < limit), None)
    by_time = next((severity for limit, severity in FULL_IN_MS if full_ms is not None and full_ms < limit), None)
    found = [severity for severity in (by_share, by_time) if severity is not None]
    if not found:
        return
    total = f" of {format_size(first.total_bytes)}" if first.total_bytes else ""
    when = f", full in about {format_duration(full_ms)} at {format_size(round(growth))}/s" if full_ms else ""
    yield Finding(
        severity=max(found),
        subject=f"broker {first.broker_id}",
        cause=f"the disk of broker {first.broker_id} fills: {format_size(free)}{total} are free{when}",
        evidence=tuple(
            f"{directory.path}: replicas take {format_size(directory.used_bytes)}" for directory in directories
        ),
        look=command("cluster", "log-dirs", "--broker", str(first.broker_id), "--human"),
        repair="lower retention.ms or retention.bytes of the largest topics ('kctl cluster log-dirs --by topic'), or "
        "move partitions to other brokers ('kctl reassign plan rebalance')",
    )
