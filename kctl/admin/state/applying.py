"""Reads the state that a document describes from a cluster, and performs the changes towards it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import TypeVar

from kctl.admin.placement.execution import start_moves
from kctl.admin.placement.goals import plan_replication_factor, read_placement
from kctl.admin.placement.plan import Move, plan_moves
from kctl.admin.placement.reassignment import ongoing_if_supported
from kctl.admin.security.acls import create_acls, delete_acls, list_acls
from kctl.admin.security.quotas import QuotaChange, alter_quotas, describe_quotas
from kctl.admin.security.users import NewPassword, delete_credentials, describe_users, set_password
from kctl.admin.state.diff import PARTITIONS, REPLICATION_FACTOR, Action, Change, Kind, PresentState, PresentTopic
from kctl.admin.state.document import DesiredState, DesiredTopic, DesiredUser, UserKey
from kctl.admin.topics.overrides import alter_topic_configs, topic_overrides
from kctl.admin.topics.topics import BROKER_DEFAULT, NewTopic, create_partitions, create_topics, delete_topics
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import Topic
from kctl.client.outcome import Outcome, failure_of
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.security.acls import AclBinding

# Reads from a cluster what a document of `kctl plan` can contain.


T = TypeVar("T")

NOT_AVAILABLE = frozenset({ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of clusters without ACLs, quotas or users."""


async def read_state(client: ClusterClient, desired: DesiredState) -> PresentState:
    """Read the present state of the cluster, limited to the sections of the document.  Raises ApiError."""
    managed = desired.managed
    topics = await _topics(client, desired) if desired.topics or managed.topics else {}
    acls = await list_acls(client) if desired.acls or managed.acls else []
    quotas = (await describe_quotas(client))[0] if desired.quotas or managed.quotas else []
    users = await _users(client) if desired.users or managed.users else {}
    return PresentState(topics, acls, {quota.entity: quota.quotas for quota in quotas}, users)


async def export_state(client: ClusterClient) -> tuple[DesiredState, list[str]]:
    """Return the topics, ACLs, quotas and users of a cluster as a document, and notes about what is left out.

    Internal topics are left out.  Raises ApiError.
    """
    metadata = await client.metadata()
    names = [topic.name for topic in metadata.topics.values() if not topic.is_internal]
    found = await _present(client, [metadata.topics[name] for name in names], set(names))
    notes: list[str] = []
    mixed = [name for name, topic in found.items() if len(topic.replication_factors) > 1]
    notes += [f"topic '{name}' has partitions with different numbers of replicas; none is exported" for name in mixed]
    acls = await _if_available(list_acls(client), "ACLs", notes)
    quotas = await _if_available(describe_quotas(client), "quotas", notes)
    users = await _if_available(_users(client), "users", notes)
    state = DesiredState(
        topics={name: _desired(topic) for name, topic in found.items()},
        acls=acls or None,
        quotas={quota.entity: quota.quotas for quota in quotas[0]} or None if quotas else None,
        users={key: DesiredUser(iterations, None) for key, iterations in (users or {}).items()} or None,
    )
    return state, notes


async def _if_available(reading: Awaitable[T], what: str, notes: list[str]) -> T | None:
    """None for a cluster that has none of these; raises other errors."""
    try:
        return await reading
    except ApiError as error:
        if error.code not in NOT_AVAILABLE:
            raise
        notes.append(f"{what} are not exported: {error}")
        return None


async def _topics(client: ClusterClient, desired: DesiredState) -> dict[str, PresentTopic]:
    """Return the topics that the document names or covers."""
    metadata = await client.metadata()
    chosen = [
        topic
        for topic in metadata.topics.values()
        if topic.name in desired.topics or desired.managed.has_topic(topic.name)
    ]
    with_configs = {name for name, topic in desired.topics.items() if topic.configs is not None}
    return await _present(client, chosen, with_configs)


async def _present(client: ClusterClient, topics: list[Topic], with_configs: set[str]) -> dict[str, PresentTopic]:
    for topic in topics:
        if topic.error is not ErrorCode.NONE:
            raise ApiError(topic.error, f"topic '{topic.name}' cannot be described: {topic.error.description}")
    described = [topic.name for topic in topics if topic.name in with_configs]
    overrides = await topic_overrides(client, described) if described else {}
    ongoing = await ongoing_if_supported(client) if topics else {}
    found = {}
    for topic in topics:
        configs = overrides.get(topic.name, {})
        if isinstance(configs, Outcome):
            raise ApiError(configs.error, f"topic '{topic.name}': {configs.message}")
        factors = set()
        for partition in topic.partitions:
            moving = ongoing.get(TopicPartition(topic.name, partition.partition))
            factors.add(len(partition.replicas if moving is None else moving.target))
        found[topic.name] = PresentTopic(len(topic.partitions), frozenset(factors), configs, topic.is_internal)
    return found


async def _users(client: ClusterClient) -> dict[UserKey, int]:
    found = {}
    for user in await describe_users(client):
        if not user.outcome.is_done:
            raise ApiError(user.outcome.error, f"user '{user.outcome.name}': {user.outcome.message}")
        for mechanism, iterations in user.iterations.items():
            found[UserKey(user.outcome.name, mechanism)] = iterations
    return found


def _desired(topic: PresentTopic) -> DesiredTopic:
    factors = topic.replication_factors
    configs = {key: value for key, value in topic.configs.items() if value is not None}
    return DesiredTopic(topic.partitions, min(factors) if len(factors) == 1 else None, configs)


# Performs the changes of `kctl.admin.state.diff`, one target after another, and records the outcome of each.


Step = tuple[Change, ...]
"""Changes of one kind and target that one request makes."""

Start = Callable[[ClusterClient, Sequence[Move]], Awaitable[dict[TopicPartition, Outcome]]]
"""Starts moves and returns the outcome of each."""


class Applying:
    """The outcomes of the changes so far, also if the work is interrupted."""

    def __init__(self, desired: DesiredState, passwords: Callable[[str], str], start: Start = start_moves) -> None:
        """`passwords` returns the secret of a reference; `start` starts reassignments."""
        self.outcomes: dict[Change, Outcome] = {}
        self._desired = desired
        self._passwords = passwords
        self._start = start

    async def run(self, client: ClusterClient, changes: Sequence[Change], *, validate_only: bool = False) -> None:
        """Perform the changes in their order; after a failure nothing is removed any more.

        With `validate_only`, brokers check what they can check.  Raises ClusterUnreachable and TimeoutError; then the
        outcome of the change that was being made is unknown, and it has none.
        """
        for step in steps(changes):
            if step[0].is_removal and any(not outcome.is_done for outcome in self.outcomes.values()):
                return
            try:
                outcomes = await self._perform(client, step, validate_only=validate_only)
            except ApiError as error:
                outcomes = [failure_of(step[0].name, error)] * len(step)
            self.outcomes.update(zip(step, outcomes, strict=True))

    async def _perform(self, client: ClusterClient, step: Step, *, validate_only: bool) -> list[Outcome]:
        first = step[0]
        match first:
            case Change(kind=Kind.ACL):
                bindings = [change.target for change in step if isinstance(change.target, AclBinding)]
                if validate_only:
                    return [Outcome(change.name) for change in step]
                work = delete_acls if first.is_removal else create_acls
                return await work(client, bindings)
            case Change(kind=Kind.QUOTA, target=tuple() as entity):
                alterations = [
                    QuotaChange(change.item or "", None if change.is_removal else float(change.after or 0))
                    for change in step
                ]
                outcome = await alter_quotas(client, entity, alterations, validate_only=validate_only)
            case Change(kind=Kind.USER, target=UserKey() as key):
                outcome = Outcome(first.name) if validate_only else await self._user(client, key, first)
            case Change(target=str() as name):
                outcome = await self._topic(client, name, step, validate_only=validate_only)
            case _:
                raise AssertionError(first)
        return [outcome] * len(step)

    async def _topic(self, client: ClusterClient, name: str, step: Step, *, validate_only: bool) -> Outcome:
        first = step[0]
        topic = self._desired.topics.get(name)
        if first.action is Action.DELETE:
            return Outcome(name) if validate_only else (await delete_topics(client, [name]))[0]
        assert topic is not None
        if first.action is Action.CREATE:
            new = NewTopic(
                name,
                topic.partitions or BROKER_DEFAULT,
                topic.replication_factor or BROKER_DEFAULT,
                configs=topic.configs or {},
            )
            return (await create_topics(client, [new], validate_only=validate_only))[0].outcome
        if first.item == PARTITIONS:
            return await create_partitions(client, name, topic.partitions or 0, validate_only=validate_only)
        if first.item == REPLICATION_FACTOR:
            return await self._replication_factor(client, name, topic.replication_factor or 0, validate_only)
        return await alter_topic_configs(
            client,
            name,
            set_={
                change.item: change.after
                for change in step
                if change.item and change.after is not None and not change.is_removal
            },
            delete=[change.item for change in step if change.item and change.is_removal],
            validate_only=validate_only,
        )

    async def _replication_factor(self, client: ClusterClient, name: str, factor: int, validate_only: bool) -> Outcome:
        """Start the reassignment of the partitions that have another number of replicas."""
        reading = await read_placement(client)
        moving = [tp for tp in reading.ongoing if tp.topic == name]
        if moving:
            text = f"the topic has {counted(len(moving), 'moving partition')}; wait, or cancel the moves"
            return Outcome(name, ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
        movable = [tp for tp in reading.state.replicas if tp.topic == name]
        try:
            targets = plan_replication_factor(reading.state, factor, movable, list(reading.state.racks))
        except KctlError as error:
            return Outcome(name, ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
        if validate_only or not targets:
            return Outcome(name)
        outcomes = await self._start(client, plan_moves(targets, reading.metadata, reading.ongoing, reading.sizes))
        return next((outcome for outcome in outcomes.values() if not outcome.is_done), Outcome(name))

    async def _user(self, client: ClusterClient, key: UserKey, change: Change) -> Outcome:
        if change.is_removal:
            return (await delete_credentials(client, key.name, [key.mechanism]))[key.mechanism]
        user = (self._desired.users or {})[key]
        assert user.password is not None
        password = NewPassword(self._passwords(user.password), (key.mechanism,), user.iterations)
        return (await set_password(client, key.name, password))[key.mechanism]


def steps(changes: Sequence[Change]) -> list[Step]:
    """Return the changes in their order, those together that one request makes."""
    return [tuple(group) for _, group in groupby(changes, key=_request_of)]


def _request_of(change: Change) -> tuple[object, ...]:
    if change.kind is Kind.ACL:
        return change.kind, change.action
    numbers = (PARTITIONS, REPLICATION_FACTOR)
    is_number = change.kind is Kind.TOPIC and change.item in numbers and change.action is Action.ALTER
    return change.kind, change.target, change.is_removal, change.item if is_number else None
