"""How objects that end are freed at once, and not by the garbage collector, which visits old objects after hours.

An exception refers to its traceback, this to the frames, and these to their local variables, with the buffers of the
connection for example.  Such objects are in a cycle when one of them refers to the exception.  Therefore:

- An error that is kept, in an attribute or for several waiters, is never raised itself, but a copy: `copy_of`.
- A frame that raises has no local name for the error, or for the future or task that it came from; `del` removes it.
- An owner drops its task when it has cancelled it: a cancelled task keeps its CancelledError.
- A part of an object that calls it back refers to it weakly: `weak_call`.
- An object that is closed drops its callbacks, also those that asyncio keeps: `free_transports`.

tests/integration/broker/test_cyclic_garbage.py counts what is left by every kind of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar
from weakref import WeakMethod

E = TypeVar("E", bound=BaseException)
P = ParamSpec("P")
R = TypeVar("R")


def copy_of(error: E) -> E:
    """Return an equal error that was not raised yet: without traceback, cause and context."""
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(vars(error))
    return copy


def weak_call(method: Callable[P, R], otherwise: R) -> Callable[P, R]:
    """Call a bound method without a reference to its object, or return `otherwise` when that is gone."""
    reference = WeakMethod(method)

    def call(*args: P.args, **options: P.kwargs) -> R:
        bound = reference()
        return otherwise if bound is None else bound(*args, **options)

    return call


def transports_under(transport: object) -> tuple[Any, ...]:
    """Return the transport of asyncio and, if it is that of a TLS connection, the one of the socket below it.

    To be called when the connection is made: asyncio forgets the lower one before the protocol learns of the end.
    """
    lower = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return (transport,) if lower is None else (transport, lower)


def free_transports(transports: Iterable[object]) -> None:
    """Remove the references of closed transports to themselves; to be called when the connection is lost.

    asyncio keeps bound methods of a transport in its attributes (_read_ready_cb; since Python 3.12 _write_ready).
    """
    for transport in transports:
        attributes = getattr(transport, "__dict__", {})
        for name in [name for name, value in attributes.items() if getattr(value, "__self__", None) is transport]:
            attributes[name] = None
