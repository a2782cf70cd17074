"""A fake cluster with client quotas and SCRAM users."""

from __future__ import annotations

from typing import Any

from kctl.protocol.apis import alter_client_quotas, describe_client_quotas, describe_user_scram_credentials
from tests.unit.client.fake_cluster import FakeCluster

EXACT, DEFAULT = 0, 1
INVALID_REQUEST = 42
FakeEntity = tuple[tuple[str, str | None], ...]


class QuotaCluster(FakeCluster):
    """Keeps quotas by entity; refuses a negative value with INVALID_REQUEST and changes nothing then."""

    def __init__(self) -> None:
        super().__init__(brokers=2)
        self.quotas: dict[FakeEntity, dict[str, float]] = {}
        self.scram_users: dict[str, int] = {}
        """The iterations of their SCRAM-SHA-256 credential."""
        self.throttle_ms = 0
        self.intercept(describe_client_quotas.DescribeClientQuotasRequest, self._describe)
        self.intercept(alter_client_quotas.AlterClientQuotasRequest, self._alter)
        self.intercept(describe_user_scram_credentials.DescribeUserScramCredentialsRequest, self._describe_users)

    def _describe(self, request: Any) -> Any:
        def matches(entity: FakeEntity) -> bool:
            parts = dict(entity)
            if request.strict and len(parts) != len(request.components):
                return False
            return all(
                component.entity_type in parts
                and (
                    (component.match_type == EXACT and parts[component.entity_type] == component.match)
                    or (component.match_type == DEFAULT and parts[component.entity_type] is None)
                    or component.match_type > DEFAULT
                )
                for component in request.components
            )

        return describe_client_quotas.DescribeClientQuotasResponse(
            throttle_time_ms=self.throttle_ms,
            error_code=0,
            error_message=None,
            entries=[
                describe_client_quotas.EntryData(
                    entity=[
                        describe_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                    ],
                    values=[describe_client_quotas.ValueData(key=key, value=value) for key, value in values.items()],
                )
                for entity, values in self.quotas.items()
                if values and matches(entity)
            ],
        )

    def _alter(self, request: Any) -> Any:
        (entry,) = request.entries
        entity = tuple((part.entity_type, part.entity_name) for part in entry.entity)
        is_refused = any(op.value < 0 for op in entry.ops)
        if not (is_refused or request.validate_only):
            values = self.quotas.setdefault(entity, {})
            for op in entry.ops:
                values.pop(op.key, None)
                if not op.remove:
                    values[op.key] = op.value
        return alter_client_quotas.AlterClientQuotasResponse(
            entries=[
                alter_client_quotas.ResponseEntryData(
                    error_code=INVALID_REQUEST if is_refused else 0,
                    error_message="A quota must not be negative." if is_refused else None,
                    entity=[
                        alter_client_quotas.ResponseEntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity
                    ],
                )
            ]
        )

    def _describe_users(self, request: Any) -> Any:
        expected = [user.name for user in request.users or []] or list(self.scram_users)
        return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
            error_code=0,
            error_message=None,
            results=[
                describe_user_scram_credentials.DescribeUserScramCredentialsResult(
                    user=name,
                    error_code=0,
                    error_message=None,
                    credential_infos=[
                        describe_user_scram_credentials.CredentialInfo(mechanism=1, iterations=self.scram_users[name])
                    ],
                )
                for name in expected
                if name in self.scram_users
            ],
        )
