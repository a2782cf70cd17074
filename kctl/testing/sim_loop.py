"""An asyncio event loop with virtual time: waiting takes no real time, and a seed determines the run.

sleep, timeout, Queue, TaskGroup, streams (with a SimNetwork) and run_in_executor work unchanged; functions of executors
run on the loop after a simulated delay.  If all tasks wait and nothing is scheduled, the run fails as a deadlock.
Unhandled exceptions fail the run instead of being logged.

Sources of nondeterminism are removed: the clock is virtual, there are no threads, and the order of sets, which depends
on addresses, is fixed for tasks and futures (kept in sets by TaskGroup and asyncio.wait), which hash by number here.

    def test_something() -> None:
        result = simulate(main, seed=7)
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import hashlib
import itertools
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple, Unpack

from kctl.testing.sim_process import SimProcess, current_process, process_of

if TYPE_CHECKING:
    from contextvars import Context


T = TypeVar("T")
Ts = TypeVarTuple("Ts")
ProtocolFactory = Callable[[], asyncio.BaseProtocol]

_SLEEP_S_MAX = 86_400.0
_CLEANUP_S = 600.0
_CLOCK_RESOLUTION_S = 1e-7
"""Larger than the spacing of floating-point numbers after ten years; otherwise a timer might never be due."""
_LATEST_EVENTS = 200
"""Kept of a trace for error messages."""


class SimDeadlockError(RuntimeError):
    """All tasks wait, and nothing is scheduled."""


class SimTrace:
    """The events of a run, counted and hashed: two runs are equal if their digests are."""

    def __init__(self) -> None:
        self.count = 0
        self.latest: deque[str] = deque(maxlen=_LATEST_EVENTS)
        self._hash = hashlib.sha256()

    def record(self, time_s: float, event: str) -> None:
        """Record an event at this virtual time."""
        line = f"{time_s:.9f} {event}"
        self.count += 1
        self.latest.append(line)
        self._hash.update(line.encode() + b"\n")

    def digest(self) -> str:
        """Hexadecimal SHA-256 over all events so far."""
        return self._hash.hexdigest()


class SimTask(asyncio.Task[T]):
    """A task that hashes by number."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, T], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(asyncio.Future[T]):
    """A future that hashes by number."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _VirtualSelector:
    """Selector without sockets: advances the virtual time instead of waiting."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise SimDeadlockError(_who_waits(self._loop))
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        pass


class LoopNetwork(Protocol):
    """What the loop needs of a network; kctl.testing.sim_network has the only one."""

    def listen(self, factory: ProtocolFactory, port: int | None) -> asyncio.AbstractServer:
        """Implement loop.create_server.  Raises OSError if the port is in use."""
        ...

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Implement loop.create_connection.  Raises OSError as a socket would."""
        ...

    def close(self) -> None:
        """Close all listeners and connections at the end of the run."""
        ...


class SimLoop(asyncio.BaseEventLoop):
    """Event loop that starts at time 0.  `random` and `trace` belong to the run; a SimNetwork sets `network`."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.random = random.Random(f"{seed} loop")
        self.trace = SimTrace()
        self.network: LoopNetwork | None = None
        self.on_step: Callable[[], None] | None = None
        """Called after all callbacks due at one time have run; an exception ends the run."""
        self.unhandled: list[BaseException] = []
        self._now_s = 0.0
        self._dead: list[SimProcess] = []
        self._frozen: list[asyncio.Handle] = []
        self._executing: dict[asyncio.Future[Any], SimProcess] = {}
        self._numbers = itertools.count()
        self._selector = _VirtualSelector(self)
        self._clock_resolution = _CLOCK_RESOLUTION_S
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._keep_unhandled)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        """Advance the time to the next timer, at most by this."""
        if self.on_step is not None:
            self.on_step()
        scheduled = self._timers()
        next_s = scheduled[0].when() if scheduled else self._now_s + seconds
        # Set, not added: a rounding error could miss the timer.
        self._now_s = max(self._now_s, min(next_s, self._now_s + _SLEEP_S_MAX))

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedules a callback, unless its process has been killed."""
        if context is None:
            context = contextvars.copy_context()
        if process_of(context).is_alive:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._frozen.append(handle)
        return handle

    def freeze(self, process: SimProcess) -> None:
        """Kill a process: none of its callbacks runs any more."""
        process.is_alive = False
        self._dead.append(process)
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]  # of BaseEventLoop, unlisted
        for index, handle in enumerate(ready):
            if _owner(handle) is process:
                self._frozen.append(handle)
                # asyncio runs as many handles as there were at the beginning of the iteration.
                ready[index] = asyncio.Handle(bool, (), self)
                ready[index].cancel()
        for timer in self._timers():
            if _owner(timer) is process:
                timer.cancel()

    def thaw(self) -> None:
        """Let killed processes finish at the end of the run, so that their tasks can be cleaned up."""
        for process in self._dead:
            process.is_alive = True
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        ready.extend(self._frozen)
        for future in [future for future, process in self._executing.items() if process in self._dead]:
            future.cancel()  # Work in its executors ended with the process.
        self._dead.clear()
        self._frozen.clear()

    def _timers(self) -> list[asyncio.TimerHandle]:
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled", [])
        return scheduled

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return SimFuture(next(self._numbers), loop=self)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`, because there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Run the function on the loop after a random delay, which depends on the seed."""
        future = self.create_future()
        delay_s = self.random.expovariate(1 / current_process().executor_delay_s)
        self.trace.record(self._now_s, f"executor {getattr(func, '__name__', 'call')} delay={delay_s:.9f}")
        self._executing[future] = current_process()
        self.call_later(delay_s, self._complete, future, functools.partial(func, *args))
        return future

    def _complete(self, future: asyncio.Future[T], function: Callable[[], T]) -> None:
        del self._executing[future]
        if future.cancelled():
            return
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    # The next two implement the one overload that the simulated network needs.

    async def create_server(  # type: ignore[override]
        self, protocol_factory: ProtocolFactory, host: Any = None, port: int | None = None, **options: Any
    ) -> asyncio.AbstractServer:
        """Listen on the simulated network."""
        return self._connected().listen(protocol_factory, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: ProtocolFactory, host: str | None = None, port: int | None = None, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect through the simulated network.  Raises OSError as a socket would."""
        return await self._connected().connect(protocol_factory, host or "", port or 0)

    def _connected(self) -> LoopNetwork:
        if self.network is None:
            raise OSError("no SimNetwork was made for this loop")
        return self.network

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **options: Any,
    ) -> SimTask[T]:
        number = next(self._numbers)
        name = options.pop("name", None) or f"sim-{number}"  # Python 3.13.3 and later pass it to the factory.
        return SimTask(number, coroutine, loop=loop, name=name, **options)  # type: ignore[arg-type]  # not a generator

    def _keep_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        # Streams read the exception of a cancelled task, which raises CancelledError here.
        if not isinstance(error, asyncio.CancelledError):
            self.unhandled.append(error)

    def _process_events(self, event_list: list[Any]) -> None:
        """Process nothing: BaseEventLoop requires this method; the selector has no events."""

    def _write_to_self(self) -> None:
        """Do nothing: BaseEventLoop requires this method to interrupt a waiting selector; this one never waits."""


def simulate(main: Callable[[SimLoop], Awaitable[T]], *, seed: int) -> T:
    """Run `main` on a new loop, then cancel remaining tasks and close all connections.

    Raises SimDeadlockError, and an exception group of all unhandled exceptions.
    """
    loop = SimLoop(seed)
    try:
        result = loop.run_until_complete(_awaited(main, loop))
    finally:
        with contextlib.suppress(SimDeadlockError):
            _cancel_leftovers(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    if loop.unhandled:
        raise BaseExceptionGroup(f"unhandled in the run with seed {seed}", loop.unhandled)
    return result


async def _awaited(main: Callable[[SimLoop], Awaitable[T]], loop: SimLoop) -> T:
    return await main(loop)


def _cancel_leftovers(loop: SimLoop) -> None:
    loop.on_step = None
    loop.thaw()
    leftovers = sorted(asyncio.all_tasks(loop), key=hash)
    if loop.network is not None:
        loop.network.close()
    for task in leftovers:
        task.cancel()
    if leftovers:
        loop.run_until_complete(asyncio.wait(leftovers, timeout=_CLEANUP_S))
    for task in leftovers:
        error = _how_it_ended(task)
        if error is not None:
            loop.unhandled.append(error)


def _how_it_ended(task: asyncio.Task[Any]) -> BaseException | None:
    if not task.done():
        return RuntimeError(f"{task.get_name()} has not ended {_CLEANUP_S:.0f} s after it was cancelled: {task}")
    return None if task.cancelled() else task.exception()


def _owner(handle: asyncio.Handle) -> SimProcess:
    context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001 - unlisted, and needed
    return process_of(context)


def _who_waits(loop: SimLoop) -> str:
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        frames = task.get_stack(limit=1)
        where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "nowhere"
        lines.append(f"  {task.get_name()} waits at {where}")
    return f"deadlock at {loop.time():.3f} s: nothing is scheduled, and\n" + "\n".join(lines)
