"""Whether brokers can log in to the controllers of a plan, and as whom.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.migration.target.properties import PLAINTEXT, inter_broker_listener, inter_broker_protocol
from kctl.migration.target.records import Findings

_ANONYMOUS = "User:ANONYMOUS"


def check_controller_security(
    node_id: int, properties: Mapping[str, str], *, protocol: str, controllers: int, findings: Findings
) -> None:
    """Add what a broker with these properties needs for controllers whose listeners have a security protocol."""
    between_brokers = inter_broker_protocol(properties)
    if protocol == PLAINTEXT != between_brokers:
        findings.notes.append(
            f"node {node_id}: brokers connect to each other by {between_brokers}, but to controllers by {PLAINTEXT}: "
            "give --controller-protocol to secure these connections too"
        )
    if protocol.startswith("SASL"):
        _check_login(node_id, properties, between_brokers, controllers, findings)
    if protocol.endswith("SSL") and not _has(properties, "ssl.keystore.location", "ssl.keystore.certificate.chain"):
        findings.notes.append(
            f"node {node_id}: it has no key store for {protocol} controllers: add listener.name.controller.ssl.keystore"
            ".location, its password and a trust store to its new properties"
        )
    if "authorizer.class.name" in properties:
        _check_principal(node_id, properties, protocol, between_brokers, findings)


def _check_login(
    node_id: int, properties: Mapping[str, str], between_brokers: str, controllers: int, findings: Findings
) -> None:
    mechanism = properties.get("sasl.mechanism.inter.broker.protocol", "GSSAPI")
    if mechanism.startswith("SCRAM") and controllers > 1:
        problem = (
            f"several controllers cannot log in to each other by {mechanism}: the credentials are in the metadata log, "
            "which has no leader before (KIP-900); give --controller-protocol SSL, or one controller"
        )
        if problem not in findings.problems:
            findings.problems.append(problem)
    if not between_brokers.startswith("SASL"):
        findings.notes.append(
            f"node {node_id}: brokers do not log in to each other by SASL: add sasl.enabled.mechanisms, "
            "sasl.mechanism.controller.protocol and the login of the listener controller to its new properties"
        )


def _check_principal(
    node_id: int, properties: Mapping[str, str], protocol: str, between_brokers: str, findings: Findings
) -> None:
    """Add a note if an authorizer would refuse the registration of the broker, which is no super user."""
    if properties.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true":
        return
    has_name = protocol.startswith("SASL") or (
        protocol == "SSL" and _has(properties, "ssl.client.auth", is_="required")
    )
    if not has_name and _ANONYMOUS not in properties.get("super.users", ""):
        findings.notes.append(
            f"node {node_id}: brokers connect to {protocol} controllers as {_ANONYMOUS}, which is not in super.users: "
            "add it in the new properties, or give --controller-protocol"
        )
    elif has_name and protocol.startswith("SASL") != between_brokers.startswith("SASL"):
        findings.notes.append(
            f"node {node_id}: brokers connect to {protocol} controllers with other names than to each other by "
            f"{between_brokers}: add these to super.users in the new properties"
        )


def _has(properties: Mapping[str, str], *names: str, is_: str | None = None) -> bool:
    """Return whether one of the properties is set, for all listeners or for that between brokers."""
    prefix = f"listener.name.{inter_broker_listener(properties).lower()}."
    values = [properties[key] for name in names for key in (name, prefix + name) if key in properties]
    return any(is_ is None or value.strip() == is_ for value in values)
