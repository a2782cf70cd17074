"""ApiVersions (key 18, versions 0-4): the APIs and versions that this broker serves; the first request of most clients.

A version above 4 gets UNSUPPORTED_VERSION in the layout of version 0, from dispatch.  Version 3 carries the client's
software name and version, which must consist of letters, digits, dots and dashes, else INVALID_REQUEST (KIP-511).  Its
response has the supported and the finalized features and the epoch of the latter, from inter.broker.protocol.version
2.7 on (KIP-584).  Version 3 leaves out supported features whose lowest level is 0, which older clients cannot read
(KAFKA-17011).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kctl.errors import ErrorCode
from kctl.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kctl.server.cluster.configs.features import UNKNOWN_EPOCH, FinalizedFeatures
from kctl.server.requests.context import RequestContext

_SOFTWARE_WORD = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_LEVEL_0 = 4


class ApiVersionsHandler:
    """Serves ApiVersions requests; `served` returns the list from the table of handlers."""

    def __init__(self, served: Callable[[], list[ApiVersion]], features: FinalizedFeatures | None = None) -> None:
        self._served = served
        self._features = features

    def handle(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        """Serve one request and return the response."""
        is_flexible = context.api_version >= FIRST_VERSION_WITH_SOFTWARE
        if is_flexible:
            client_software = (request.client_software_name, request.client_software_version)
            if not all(_SOFTWARE_WORD.match(name) for name in client_software):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
            if context.peer.timing is not None:
                context.peer.timing.software = client_software
        response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=self._served())
        if is_flexible and self._features is not None and self._features.epoch != UNKNOWN_EPOCH:
            response.supported_features = [
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, (lowest, highest) in self._features.supported.items()
                if lowest > 0 or context.api_version >= FIRST_VERSION_WITH_LEVEL_0
            ]
            response.finalized_features_epoch = self._features.epoch
            response.finalized_features = [
                FinalizedFeatureKey(name=name, max_version_level=highest, min_version_level=lowest)
                for name, (lowest, highest) in self._features.finalized().items()
            ]
        return response
