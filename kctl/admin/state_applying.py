"""Performs the changes of `kctl.admin.state_diff`, one target after another, and records the outcome of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from kctl.admin.acls import create_acls, delete_acls
from kctl.admin.desired_state import DesiredState, UserKey
from kctl.admin.outcome import Outcome, failure_of
from kctl.admin.placement_goals import plan_replication_factor
from kctl.admin.placement_reading import read_placement
from kctl.admin.quotas import QuotaChange, alter_quotas
from kctl.admin.reassigning import start_moves
from kctl.admin.reassignment_plan import Move, plan_moves
from kctl.admin.state_diff import PARTITIONS, REPLICATION_FACTOR, Action, Change, Kind
from kctl.admin.topic_changes import BROKER_DEFAULT, NewTopic, create_partitions, create_topics, delete_topics
from kctl.admin.topic_configs import alter_topic_configs
from kctl.admin.users import NewPassword, delete_credentials, set_password
from kctl.client.cluster import ClusterClient
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.quantities import counted
from kctl.security.acls import AclBinding

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
        """Performs the changes in their order; after a failure nothing is removed any more.

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
                    QuotaChange(one.item or "", None if one.is_removal else float(one.after or 0)) for one in step
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
            set_={one.item: one.after for one in step if one.item and one.after is not None and not one.is_removal},
            delete=[one.item for one in step if one.item and one.is_removal],
            validate_only=validate_only,
        )

    async def _replication_factor(self, client: ClusterClient, name: str, factor: int, validate_only: bool) -> Outcome:
        """Starts the reassignment of the partitions that have another number of replicas."""
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
        return next((one for one in outcomes.values() if not one.is_done), Outcome(name))

    async def _user(self, client: ClusterClient, key: UserKey, change: Change) -> Outcome:
        if change.is_removal:
            return (await delete_credentials(client, key.name, [key.mechanism]))[key.mechanism]
        user = (self._desired.users or {})[key]
        assert user.password is not None
        password = NewPassword(self._passwords(user.password), (key.mechanism,), user.iterations)
        return (await set_password(client, key.name, password))[key.mechanism]


def steps(changes: Sequence[Change]) -> list[Step]:
    """The changes in their order, those together that one request makes."""
    return [tuple(group) for _, group in groupby(changes, key=_request_of)]


def _request_of(change: Change) -> tuple[object, ...]:
    if change.kind is Kind.ACL:
        return change.kind, change.action
    numbers = (PARTITIONS, REPLICATION_FACTOR)
    is_number = change.kind is Kind.TOPIC and change.item in numbers and change.action is Action.ALTER
    return change.kind, change.target, change.is_removal, change.item if is_number else None
