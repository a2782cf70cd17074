"""No response is sent before its transaction is on disk, and one commit serves all waiting ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from kctl.system.steps import Steps
from kctl.zookeeper.embedded.batches import Batches


class Disk(Executor):
    """Commits when the test calls for it."""

    def __init__(self) -> None:
        self.commits: list[tuple[Future[Any], Any]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.commits.append((future, args[0]))
        return future


class Account:
    """A state changed by transactions: numbers, and the uncommitted ones."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.done: list[int] = []
        self.failures: list[str] = []
        self.changed: list[int] = []
        self.batches = Batches(
            self.disk,
            take_changes=self.take,
            commit=lambda _: None,
            on_done=lambda arrived: self.done.append(len(arrived)),
            on_failed=lambda error: self.failures.append(str(error)),
        )

    def take(self) -> list[int] | None:
        changed, self.changed = self.changed, []
        return changed or None

    def write(self, number: int) -> None:
        self.batches.add(lambda: self.changed.append(number))

    def write_in_steps(self, count: int) -> None:
        def long() -> Steps[None]:
            for number in range(count):
                self.changed.append(number)
                yield

        self.batches.add(long)

    def read(self) -> None:
        self.batches.add(lambda: None)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_writes_during_a_commit_form_the_next_batch() -> None:
    async def main() -> None:
        account = Account()
        account.write(1)
        account.write(2)
        await settled()
        for number in (3, 4, 5):
            account.write(number)
        account.read()
        await settled()
        assert [changes for _, changes in account.disk.commits] == [[1, 2]]
        assert account.done == []
        account.disk.commits[0][0].set_result(None)
        await settled()
        assert [changes for _, changes in account.disk.commits] == [[1, 2], [3, 4, 5]]
        assert account.done == [2]
        account.disk.commits[1][0].set_result(None)
        await settled()
        assert account.done == [2, 4]

    asyncio.run(main())


def test_reads_alone_need_no_commit() -> None:
    async def main() -> None:
        account = Account()
        account.read()
        await settled()
        assert account.done == [1]
        assert account.disk.commits == []

    asyncio.run(main())


def test_after_a_failed_commit_no_request_is_processed() -> None:
    async def main() -> None:
        account = Account()
        account.write(1)
        await settled()
        account.write(2)
        account.disk.commits[0][0].set_exception(OSError("disk full"))
        await settled()
        account.write(3)
        await settled()
        assert account.failures == ["disk full"]
        assert account.done == []
        assert len(account.disk.commits) == 1

    asyncio.run(main())


def test_stopping_waits_for_the_running_commit() -> None:
    async def main() -> None:
        account = Account()
        account.write(1)
        await settled()
        account.write(2)
        stopping = asyncio.create_task(account.batches.stop())
        await settled()
        assert not stopping.done()
        account.disk.commits[0][0].set_result(None)
        await stopping
        assert account.done == [1]
        assert len(account.disk.commits) == 1

    asyncio.run(main())


def test_long_work_is_one_transaction_and_other_work_waits_for_it() -> None:
    async def main() -> None:
        account = Account()
        account.write_in_steps(3)
        account.write(3)
        for _ in range(3):
            await asyncio.sleep(0)
            assert account.disk.commits == []
            assert 3 not in account.changed, "other work is not executed in between"
        await settled()
        assert [changes for _, changes in account.disk.commits] == [[0, 1, 2, 3]]

    asyncio.run(main())


def test_a_stop_commits_no_part_of_long_work() -> None:
    async def main() -> None:
        account = Account()
        account.write_in_steps(3)
        await asyncio.sleep(0)
        await account.batches.stop()
        await settled()
        assert account.changed == [0]
        assert account.disk.commits == []

    asyncio.run(main())
