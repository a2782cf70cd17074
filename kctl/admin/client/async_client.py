"""The administration client for applications with an event loop; kctl.admin.client.blocking_client is for the others.

Each method is an operation of kctl.admin, which the commands use too, with checked arguments, a deadline, and a result
or error of each item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kctl.admin.client.arguments import (
    check_assignment,
    check_binding,
    check_change,
    check_entity,
    check_fields,
    check_filter,
    check_name,
    check_number,
    check_once,
    check_password,
    check_resource,
    check_topic,
    checked_by_partition,
    checked_items,
    checked_mapping,
    checked_names,
    checked_partitions,
    checked_replicas,
)
from kctl.admin.client.calls import AdminCalls
from kctl.admin.client.results import K, Results, error_of, error_or, results_of
from kctl.admin.groups import groups as group_operations
from kctl.admin.groups import offsets as offset_operations
from kctl.admin.groups.groups import ListedGroup
from kctl.admin.placement import election, reassignment
from kctl.admin.placement.election import Election, ElectionType
from kctl.admin.placement.reassignment import Ongoing
from kctl.admin.records import deletion
from kctl.admin.records.deletion import TO_END
from kctl.admin.security import acls as acl_operations
from kctl.admin.security import quotas as quota_operations
from kctl.admin.security import users as user_operations
from kctl.admin.security.quotas import Entity, EntityQuotas, FilterPart, QuotaChange
from kctl.admin.security.users import NewPassword
from kctl.admin.topics import configs as config_operations
from kctl.admin.topics import topics as topic_operations
from kctl.admin.topics.configs import ConfigChange, ConfigEntry, ConfigResource
from kctl.admin.topics.overrides import alter_configs_of_any_broker
from kctl.admin.topics.topics import Assignment, CreatedTopic, NewTopic
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.committed_offsets import CommittedOffset, commit_of
from kctl.client.consuming.list_offsets import SPECIAL, IsolationLevel, OffsetAt, list_offsets
from kctl.client.consuming.positions import NO_EPOCH, Position
from kctl.client.metadata import Broker, Topic
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, UsageError
from kctl.lag.facts import GroupDescription
from kctl.model import INT32_MAX, TopicPartition
from kctl.output.quantities import INT64_MAX
from kctl.security.acls import AclBinding, AclFilter
from kctl.security.scram import Mechanism

T = TypeVar("T")


class ClusterDescription(NamedTuple):
    """The cluster as its brokers describe it."""

    cluster_id: str | None
    controller_id: int
    """-1 if there is none; without ZooKeeper any broker, which passes requests on."""
    brokers: dict[int, Broker]
    """The brokers that are alive, by id."""


class AsyncAdminClient(AdminCalls):
    """Administers a cluster; use as an async context manager.  Owner: event loop.

    Calls may run concurrently.  Each has one deadline for all of its requests and retries, `timeout_ms` or
    default_api_timeout_ms, after which it raises ApiError(REQUEST_TIMED_OUT).  While no broker can be reached, a call
    waits.  A call that changes something is not repeated after a lost connection, because the broker may have performed
    it: it raises ClusterUnreachable.

    All methods raise UsageError, which names the argument; ApiError for what concerns the call as a whole, such as
    UNSUPPORTED_VERSION; AuthenticationFailed; and ClusterUnreachable.  Errors of single items are in the Results.
    """

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the id of the cluster, its controller and its live brokers."""
        metadata = await self._read("describe_cluster", lambda client: client.metadata([]), timeout_ms)
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, metadata.brokers)

    # Topics.

    async def list_topics(self, *, include_internal: bool = False, timeout_ms: int | None = None) -> list[Topic]:
        """Return the topics that the user may describe, by name."""
        topics = await self._read("list_topics", topic_operations.list_topics, timeout_ms)
        return [topic for topic in topics if include_internal or not topic.is_internal]

    async def describe_topics(self, names: Collection[str], *, timeout_ms: int | None = None) -> Results[str, Topic]:
        """Return the partitions, leaders and replicas of topics."""
        wanted = checked_names("names", names)

        async def work(client: ClusterClient) -> Results[str, Topic]:
            found = {topic.name: topic for topic in await topic_operations.describe_topics(client, wanted)}
            return Results.of(
                wanted,
                {
                    name: topic if topic.error is ErrorCode.NONE else ApiError(topic.error)
                    for name, topic in found.items()
                },
            )

        return await self._read("describe_topics", work, timeout_ms) if wanted else Results()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Results[str, CreatedTopic]:
        """Create topics, or only check them; return when the live brokers have them in their metadata."""
        wanted = checked_items("topics", topics, NewTopic)
        for index, topic in enumerate(wanted):
            check_topic(f"topics[{index}]", topic)
        names = [topic.name for topic in wanted]
        check_once("topics", names)

        async def work(client: ClusterClient) -> Results[str, CreatedTopic]:
            created = await topic_operations.create_topics(client, wanted, validate_only=validate_only)
            return Results.of(names, {topic.outcome.name: error_or(topic.outcome, topic) for topic in created})

        return await self._change("create_topics", work, timeout_ms) if wanted else Results()

    async def delete_topics(self, names: Collection[str], *, timeout_ms: int | None = None) -> Results[str, None]:
        """Delete topics with all their records."""
        wanted = checked_names("names", names)

        async def work(client: ClusterClient) -> Results[str, None]:
            outcomes = await topic_operations.delete_topics(client, wanted)
            return results_of(wanted, {outcome.name: outcome for outcome in outcomes})

        return await self._change("delete_topics", work, timeout_ms) if wanted else Results()

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Assignment] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Grows topics to these numbers of partitions; `assignments` has the replicas of the new ones, by topic."""
        wanted = checked_mapping("counts", counts, str)
        checked_names("counts", list(wanted))
        for name, count in wanted.items():
            check_number(f"counts['{name}']", count, low=1, high=INT32_MAX)
        replicas = {} if assignments is None else checked_mapping("assignments", assignments, str)
        for name, assignment in replicas.items():
            if name not in wanted:
                raise UsageError(f"assignments['{name}'] is about a topic that is not among the counts")
            check_assignment(f"assignments['{name}']", assignment)

        async def grow(client: ClusterClient, name: str) -> Outcome:
            return await topic_operations.create_partitions(
                client, name, wanted[name], assignment=replicas.get(name, ()), validate_only=validate_only
            )

        async def work(client: ClusterClient) -> Results[str, None]:
            return await _each(client, wanted, grow)

        return await self._change("create_partitions", work, timeout_ms)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before these offsets, -1 for the end of the partition; return the first offsets left."""
        wanted = checked_by_partition("offsets", offsets)
        for tp, offset in wanted.items():
            check_number(f"offsets[{tp}]", offset, low=TO_END, high=INT64_MAX)

        async def work(client: ClusterClient) -> Results[TopicPartition, int]:
            return Results.of(wanted, await deletion.delete_records(client, wanted))

        return await self._change("delete_records", work, timeout_ms) if wanted else Results()

    async def list_offsets(
        self,
        timestamps_ms: Mapping[TopicPartition, int | str],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, OffsetAt]:
        """Return the first record at or after each time, offset -1 if there is none.

        A time is in ms since the epoch, or one of earliest, latest, max-timestamp, earliest-local, latest-tiered.
        """
        wanted = checked_by_partition("timestamps_ms", timestamps_ms)
        times: dict[TopicPartition, int] = {}
        for tp, time in wanted.items():
            if isinstance(time, str) and time not in SPECIAL:
                raise UsageError(f"timestamps_ms[{tp}] is '{time}'; it must be an int or one of {', '.join(SPECIAL)}")
            if not isinstance(time, str):
                check_number(f"timestamps_ms[{tp}]", time, low=0, high=INT64_MAX)
            times[tp] = SPECIAL[time] if isinstance(time, str) else time
        if str(isolation_level).upper() not in IsolationLevel.__members__:
            raise UsageError(f"isolation_level is '{isolation_level}'; use read_committed or read_uncommitted")

        async def work(client: ClusterClient) -> Results[TopicPartition, OffsetAt]:
            isolation = IsolationLevel[isolation_level.upper()]
            return Results.of(wanted, await list_offsets(client, times, isolation=isolation))

        return await self._read("list_offsets", work, timeout_ms) if wanted else Results()

    # Configurations.

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, list[ConfigEntry]]:
        """Return the properties of topics, brokers and others, all or only `names`, with their sources and synonyms."""
        wanted = checked_items("resources", resources, ConfigResource)
        for index, resource in enumerate(wanted):
            check_resource(f"resources[{index}]", resource)
        properties = None if names is None else checked_names("names", names)

        async def work(client: ClusterClient) -> Results[ConfigResource, list[ConfigEntry]]:
            found = await config_operations.describe_configs(client, wanted, names=properties)
            return Results.of(
                wanted,
                {
                    resource: ApiError(entries.error, f"{resource.name}: {entries.message}")
                    if isinstance(entries, Outcome)
                    else entries
                    for resource, entries in found.items()
                },
            )

        return await self._read("describe_configs", work, timeout_ms) if wanted else Results()

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, None]:
        """Change the named properties of each resource and no others: all of them or, on an error, none."""
        wanted = checked_mapping("changes", changes, ConfigResource)
        for resource, some in wanted.items():
            check_resource(f"changes: {resource}", resource)
            for index, change in enumerate(checked_items(f"changes['{resource.name}']", some, ConfigChange)):
                check_change(f"changes['{resource.name}'][{index}]", change)

        async def work(client: ClusterClient) -> Results[ConfigResource, None]:
            outcomes = await alter_configs_of_any_broker(client, wanted, validate_only=validate_only)
            return results_of(wanted, outcomes)

        return await self._change("alter_configs", work, timeout_ms) if wanted else Results()

    # ACLs.

    async def list_acls(self, filters: Sequence[AclFilter] = (), *, timeout_ms: int | None = None) -> list[AclBinding]:
        """Return the ACLs that any of the filters selects, sorted; all without filters."""
        wanted = checked_items("filters", filters, AclFilter)
        for index, selection in enumerate(wanted):
            check_filter(f"filters[{index}]", selection)
        return await self._read("list_acls", lambda client: acl_operations.list_acls(client, wanted), timeout_ms)

    async def create_acls(
        self, bindings: Sequence[AclBinding], *, timeout_ms: int | None = None
    ) -> Results[AclBinding, None]:
        """Create ACLs; one that exists already succeeds."""
        return await self._change_acls("create_acls", acl_operations.create_acls, bindings, timeout_ms)

    async def delete_acls(
        self, bindings: Sequence[AclBinding], *, timeout_ms: int | None = None
    ) -> Results[AclBinding, None]:
        """Delete exactly these ACLs, for example those of `list_acls`; one that does not exist succeeds."""
        return await self._change_acls("delete_acls", acl_operations.delete_acls, bindings, timeout_ms)

    async def _change_acls(
        self,
        name: str,
        operation: Callable[[ClusterClient, Sequence[AclBinding]], Awaitable[list[Outcome]]],
        bindings: Sequence[AclBinding],
        timeout_ms: int | None,
    ) -> Results[AclBinding, None]:
        given = checked_items("bindings", bindings, AclBinding)
        for index, binding in enumerate(given):
            check_binding(f"bindings[{index}]", binding)
        wanted = list(dict.fromkeys(given))

        async def work(client: ClusterClient) -> Results[AclBinding, None]:
            return results_of(wanted, dict(zip(wanted, await operation(client, wanted), strict=True)))

        return await self._change(name, work, timeout_ms) if wanted else Results()

    # Groups.

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_ms: int | None = None
    ) -> list[ListedGroup]:
        """Return the groups of all brokers that the user may describe; only those with `states` and `types`, if given.

        Raises ApiError if a broker does not list its groups.
        """
        states, types = checked_names("states", states), checked_names("types", types)

        async def work(client: ClusterClient) -> list[ListedGroup]:
            groups, failed = await group_operations.list_groups(client, states, types)
            for outcome in failed:
                raise ApiError(outcome.error, f"broker {outcome.name}: {outcome.message}")
            return sorted(groups, key=lambda group: group.group_id)

        return await self._read("list_groups", work, timeout_ms)

    async def describe_groups(
        self, group_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> Results[str, GroupDescription]:
        """State and members of groups, and their committed offsets with the ends of the partitions."""
        wanted = checked_names("group_ids", group_ids)

        async def work(client: ClusterClient) -> Results[str, GroupDescription]:
            groups = await group_operations.describe_groups(client, wanted)
            return Results.of(wanted, {group.outcome.name: error_or(group.outcome, group) for group in groups})

        return await self._read("describe_groups", work, timeout_ms) if wanted else Results()

    async def group_offsets(
        self, group_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> Results[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of groups."""
        wanted = checked_names("group_ids", group_ids)

        async def work(client: ClusterClient) -> Results[str, dict[TopicPartition, CommittedOffset]]:
            groups = await group_operations.look_up_groups(client, wanted)
            return Results.of(
                wanted,
                {
                    group.outcome.name: error_or(
                        group.outcome, offset_operations.committed_of([group]).get(group.outcome.name, {})
                    )
                    for group in groups
                },
            )

        return await self._read("group_offsets", work, timeout_ms) if wanted else Results()

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | Position | CommittedOffset],
        *,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Commit offsets, those of the next records to read, for a group without members, which need not exist."""
        check_name("group_id", group_id)
        wanted = checked_by_partition("offsets", offsets)
        commits: dict[TopicPartition, CommittedOffset] = {}
        for tp, offset in wanted.items():
            number = offset if isinstance(offset, int) else getattr(offset, "offset", offset)
            check_number(f"offsets[{tp}]", number, low=0, high=INT64_MAX)
            commits[tp] = commit_of(offset)
            check_number(f"offsets[{tp}].leader_epoch", commits[tp].leader_epoch, low=NO_EPOCH, high=INT32_MAX)

        async def work(client: ClusterClient) -> Results[TopicPartition, None]:
            return results_of(wanted, await offset_operations.commit_offsets(client, group_id, commits))

        return await self._change("alter_group_offsets", work, timeout_ms) if wanted else Results()

    async def reset_group_offsets(
        self, group_id: str, timestamps_ms: Mapping[TopicPartition, int | str], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, int]:
        """Commit the offsets of `list_offsets` for a group without members; the end for a time after all records.

        Returns the offsets.
        """
        check_name("group_id", group_id)
        end_s = asyncio.get_running_loop().time() + self._limit_ms(timeout_ms) / 1000

        def left_ms() -> int:
            return max(1, int((end_s - asyncio.get_running_loop().time()) * 1000))

        found = dict(await self.list_offsets(timestamps_ms, timeout_ms=left_ms()))
        late = {tp: "latest" for tp, at in found.items() if isinstance(at, OffsetAt) and at.offset < 0}
        found.update(await self.list_offsets(late, timeout_ms=left_ms()))
        results = Results({tp: at.offset if isinstance(at, OffsetAt) else at for tp, at in found.items()})
        offsets = {tp: offset for tp, offset in results.items() if isinstance(offset, int)}
        results.update((await self.alter_group_offsets(group_id, offsets, timeout_ms=left_ms())).errors)
        return results

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets of a group that is not subscribed to the topics."""
        check_name("group_id", group_id)
        wanted = checked_partitions("partitions", partitions)

        async def work(client: ClusterClient) -> Results[TopicPartition, None]:
            return results_of(wanted, await offset_operations.delete_offsets(client, group_id, wanted))

        return await self._change("delete_group_offsets", work, timeout_ms) if wanted else Results()

    async def delete_groups(self, group_ids: Collection[str], *, timeout_ms: int | None = None) -> Results[str, None]:
        """Delete groups without members, and their offsets."""
        wanted = checked_names("group_ids", group_ids)

        async def work(client: ClusterClient) -> Results[str, None]:
            outcomes = await group_operations.delete_groups(client, wanted)
            return results_of(wanted, {outcome.name: outcome for outcome in outcomes})

        return await self._change("delete_groups", work, timeout_ms) if wanted else Results()

    async def remove_members(
        self,
        group_id: str,
        *,
        member_ids: Collection[str] = (),
        instance_ids: Collection[str] = (),
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Remove members by their ids, and static ones by their group.instance.id, which rebalances the group.

        A member that is alive joins again.
        """
        check_name("group_id", group_id)
        members = checked_names("member_ids", member_ids)
        static = checked_names("instance_ids", instance_ids)

        async def work(client: ClusterClient) -> Results[str, None]:
            outcomes = await group_operations.remove_members(client, group_id, member_ids=members, instance_ids=static)
            return results_of([*members, *static], outcomes)

        return await self._change("remove_members", work, timeout_ms) if members or static else Results()

    # Quotas and users.

    async def describe_quotas(
        self, parts: Sequence[FilterPart] = (), *, is_strict: bool = False, timeout_ms: int | None = None
    ) -> list[EntityQuotas]:
        """Return the quotas of entities that match all parts; with `is_strict` only of those without further parts."""
        wanted = checked_items("parts", parts, FilterPart)
        for index, part in enumerate(wanted):
            check_fields(f"parts[{index}]", part, type=str, name=(str, type(None)))

        async def work(client: ClusterClient) -> list[EntityQuotas]:
            return (await quota_operations.describe_quotas(client, wanted, is_strict=is_strict))[0]

        return await self._read("describe_quotas", work, timeout_ms)

    async def alter_quotas(
        self,
        changes: Mapping[Entity, Sequence[QuotaChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[Entity, None]:
        """Change quotas of entities, such as `(("user", "alice"),)`: those of an entity all or, on an error, none."""
        wanted = checked_mapping("changes", changes, tuple)
        for entity, some in wanted.items():
            check_entity(entity)
            for index, change in enumerate(checked_items(f"changes[{entity}]", some, QuotaChange)):
                check_name(f"changes[{entity}][{index}].key", change.key)
                value: Any = change.value
                if value is not None and not isinstance(value, (int, float)):
                    kind = type(value).__name__
                    raise UsageError(f"changes[{entity}][{index}].value must be a number or None, not {kind}")

        async def alter(client: ClusterClient, entity: Entity) -> Outcome:
            return await quota_operations.alter_quotas(client, entity, wanted[entity], validate_only=validate_only)

        async def work(client: ClusterClient) -> Results[Entity, None]:
            return await _each(client, wanted, alter)

        return await self._change("alter_quotas", work, timeout_ms)

    async def describe_users(
        self, names: Collection[str] = (), *, timeout_ms: int | None = None
    ) -> Results[str, dict[Mechanism, int]]:
        """Return the iterations of the SCRAM credentials of users by mechanism; without names of all users."""
        wanted = checked_names("names", names)

        async def work(client: ClusterClient) -> Results[str, dict[Mechanism, int]]:
            users = await user_operations.describe_users(client, wanted)
            found = {user.outcome.name: error_or(user.outcome, user.iterations) for user in users}
            return Results.of(wanted or found, found)

        return await self._read("describe_users", work, timeout_ms)

    async def set_password(
        self, user: str, password: NewPassword, *, timeout_ms: int | None = None
    ) -> Results[Mechanism, None]:
        """Create or replace the SCRAM credentials of a user.  The password is not sent."""
        check_name("user", user)
        check_password("password", password)

        async def work(client: ClusterClient) -> Results[Mechanism, None]:
            return results_of(password.mechanisms, await user_operations.set_password(client, user, password))

        return await self._change("set_password", work, timeout_ms)

    async def delete_credentials(
        self, user: str, mechanisms: Sequence[Mechanism], *, timeout_ms: int | None = None
    ) -> Results[Mechanism, None]:
        """Remove SCRAM credentials of a user."""
        check_name("user", user)
        wanted = checked_items("mechanisms", mechanisms, Mechanism)

        async def work(client: ClusterClient) -> Results[Mechanism, None]:
            return results_of(wanted, await user_operations.delete_credentials(client, user, wanted))

        return await self._change("delete_credentials", work, timeout_ms)

    # Replicas and leaders.

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        kind: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, Election]:
        """Elects leaders of these partitions, or of all that need an election; a leader that is right is no error."""
        wanted = None if partitions is None else checked_partitions("partitions", partitions)
        if not isinstance(kind, ElectionType):
            raise UsageError(f"kind must be an ElectionType, not {type(kind).__name__}")

        async def work(client: ClusterClient) -> Results[TopicPartition, Election]:
            before = await client.metadata(None if wanted is None else {tp.topic for tp in wanted})
            elections = await election.elect_leaders(client, kind, wanted, before)
            found: dict[TopicPartition, Election | ApiError] = {
                result.tp: error_or(result.outcome, result) if result.is_needed else result for result in elections
            }
            return Results.of(found if wanted is None else wanted, found)

        return await self._change("elect_leaders", work, timeout_ms) if wanted != [] else Results()

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Ongoing]:
        """Return the reassignments in progress, of these partitions or of all."""
        wanted = None if partitions is None else checked_partitions("partitions", partitions)
        return await self._read(
            "list_reassignments", lambda client: reassignment.list_reassignments(client, wanted), timeout_ms
        )

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, None]:
        """Start the reassignment of each partition to these brokers, the preferred leader first; None cancels it."""
        wanted = checked_by_partition("targets", targets)
        replicas = {
            tp: None if target is None else checked_replicas(f"targets[{tp}]", target) for tp, target in wanted.items()
        }

        async def work(client: ClusterClient) -> Results[TopicPartition, None]:
            return results_of(wanted, await reassignment.alter_reassignments(client, replicas))

        return await self._change("alter_reassignments", work, timeout_ms) if wanted else Results()


async def _each(
    client: ClusterClient, items: Collection[K], change: Callable[[ClusterClient, K], Awaitable[Outcome]]
) -> Results[K, None]:
    """Return the results of an operation that takes one item; an error of one does not hide the others."""

    async def one(item: K) -> ApiError | None:
        try:
            outcome = await change(client, item)
            return error_of(outcome, outcome.name)
        except (ApiError, ClusterUnreachable) as error:
            code = error.code if isinstance(error, ApiError) else ErrorCode.NETWORK_EXCEPTION
            return ApiError(code, f"{item}: {error}")

    return Results(zip(items, await client.gather([one(item) for item in items]), strict=True))
