"""The administration client for applications without an event loop: an AsyncAdminClient on a thread of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kctl.admin.client.async_client import AsyncAdminClient
from kctl.admin.client.settings import AdminConfig
from kctl.client.connections.loop_thread import ForkGuard, LoopThread
from kctl.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdminClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    """Return the method of AsyncAdminClient as one that waits for the result."""

    def call(self: AdminClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._run(lambda client: method(client, *arguments, **options))

    functools.update_wrapper(call, method)
    return call


class AdminClient:
    """Administers a cluster; use as a context manager.  Several threads may use it.

    The methods, their arguments, results and errors are those of AsyncAdminClient.
    """

    def __init__(self, config: AdminConfig) -> None:
        if not isinstance(config, AdminConfig):
            raise UsageError(f"config must be an AdminConfig, not {type(config).__name__}")
        self._config = config
        self._fork_guard = ForkGuard("administration client")
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        """Return the client; nothing is sent yet."""
        thread = LoopThread("kctl admin client")
        try:
            self._client = thread.run_beside(self._open())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls of other threads that are in progress raise an error."""
        thread, self._thread = self._thread, None
        if thread is not None and not self._fork_guard.is_in_child:
            thread.run_beside(self._client.close())
            thread.close()

    client_instance_id = _blocking(AsyncAdminClient.client_instance_id)
    describe_cluster = _blocking(AsyncAdminClient.describe_cluster)
    list_topics = _blocking(AsyncAdminClient.list_topics)
    describe_topics = _blocking(AsyncAdminClient.describe_topics)
    create_topics = _blocking(AsyncAdminClient.create_topics)
    delete_topics = _blocking(AsyncAdminClient.delete_topics)
    create_partitions = _blocking(AsyncAdminClient.create_partitions)
    delete_records = _blocking(AsyncAdminClient.delete_records)
    list_offsets = _blocking(AsyncAdminClient.list_offsets)
    describe_configs = _blocking(AsyncAdminClient.describe_configs)
    alter_configs = _blocking(AsyncAdminClient.alter_configs)
    list_acls = _blocking(AsyncAdminClient.list_acls)
    create_acls = _blocking(AsyncAdminClient.create_acls)
    delete_acls = _blocking(AsyncAdminClient.delete_acls)
    list_groups = _blocking(AsyncAdminClient.list_groups)
    describe_groups = _blocking(AsyncAdminClient.describe_groups)
    group_offsets = _blocking(AsyncAdminClient.group_offsets)
    alter_group_offsets = _blocking(AsyncAdminClient.alter_group_offsets)
    reset_group_offsets = _blocking(AsyncAdminClient.reset_group_offsets)
    delete_group_offsets = _blocking(AsyncAdminClient.delete_group_offsets)
    delete_groups = _blocking(AsyncAdminClient.delete_groups)
    remove_members = _blocking(AsyncAdminClient.remove_members)
    describe_quotas = _blocking(AsyncAdminClient.describe_quotas)
    alter_quotas = _blocking(AsyncAdminClient.alter_quotas)
    describe_users = _blocking(AsyncAdminClient.describe_users)
    set_password = _blocking(AsyncAdminClient.set_password)
    delete_credentials = _blocking(AsyncAdminClient.delete_credentials)
    elect_leaders = _blocking(AsyncAdminClient.elect_leaders)
    list_reassignments = _blocking(AsyncAdminClient.list_reassignments)
    alter_reassignments = _blocking(AsyncAdminClient.alter_reassignments)

    async def _open(self) -> AsyncAdminClient:
        return AsyncAdminClient(self._config)

    def _run(self, start: Callable[[AsyncAdminClient], Coroutine[Any, Any, T]]) -> T:
        if self._fork_guard.is_in_child:
            raise UsageError(self._fork_guard.problem)
        if self._thread is None:
            raise UsageError("the administration client is closed, or was not opened: use it in a with statement")
        return self._thread.run_beside(start(self._client))
