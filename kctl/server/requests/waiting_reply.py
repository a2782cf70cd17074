"""A reply that is encoded at the moment at which its response is known.

A future of the response, whose callback encodes it for a second future, would cost each waiting request one more
iteration of the event loop.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kctl.server.requests.context import RequestContext


class WaitingReply(asyncio.Future[Any]):
    """Its handler sets the response of a request; its result is the encoded reply.

    A response that cannot be encoded sets the exception.
    """

    def __init__(self, context: RequestContext) -> None:
        super().__init__()
        self._context = context

    def set_result(self, response: Any) -> None:
        """Encodes the response and sets the reply."""
        context = self._context
        assert context.encode is not None
        try:
            reply = context.encode(context, response)
        except Exception as error:
            self.set_exception(error)
        else:
            super().set_result(reply)


def waiting_reply(context: RequestContext) -> asyncio.Future[Any]:
    """The result of a handler that sets its response later; without a dispatcher, a plain future of the response.

    The response must not take long to encode: this happens where it is set.
    """
    return asyncio.get_running_loop().create_future() if context.encode is None else WaitingReply(context)
