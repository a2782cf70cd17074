"""`kctl acls list`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.acl_rules import filters
from kctl.admin.acls import list_acls as query
from kctl.commands.acls.options import (
    Allow,
    Cluster,
    DelegationTokens,
    Deny,
    Groups,
    Hosts,
    Operations,
    Topics,
    TransactionalIds,
    Users,
    hosts_of_stored_acls,
    resources_of,
    rules_of,
)
from kctl.commands.acls.rows import LIST_COLUMNS, AclRow, acl_row
from kctl.commands.command import examples
from kctl.commands.compat.acls import listed, listed_by_principal
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.errors import UsageError
from kctl.security.acls import PatternType

app = typer.Typer(add_completion=False)


@app.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl acls list",
        "kctl acls list --topic orders --match",
        "kctl acls list --allow User:bob --operation write --format json",
    ),
)
@shows(AclRow)
def list_acls(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user: Users = None,
    cluster: Cluster = False,
    prefix: Annotated[bool, typer.Option("--prefix", help="Only rules about prefixes.")] = False,
    literal: Annotated[bool, typer.Option("--literal", help="Only rules about exact names.")] = False,
    match: Annotated[
        bool, typer.Option("--match", help="All rules that apply to the resource: exact names, prefixes and *.")
    ] = False,
    allow: Allow = None,
    deny: Deny = None,
    operation: Operations = None,
    host: Hosts = None,
    compat: Compat = None,
) -> ExitStatus:
    """List ACLs; without options all of them.

    An ACL is listed if it matches one value of each option that is given.
    """
    run: Invocation = ctx.obj
    if prefix + literal + match > 1:
        raise UsageError("give only one of --prefix, --literal and --match")
    pattern_type = (
        PatternType.PREFIXED
        if prefix
        else PatternType.LITERAL
        if literal
        else PatternType.MATCH
        if match
        else PatternType.ANY
    )
    resources = resources_of(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        delegation_tokens=delegation_token,
        users=user,
        cluster=cluster,
        pattern_type=pattern_type,
    )
    hosts = host if compat else hosts_of_stored_acls(host)
    selected = filters(resources, rules_of(allow=allow, deny=deny, operations=operation, hosts=hosts))
    acls = run.on_cluster(lambda client: query(client, selected))
    principals = dict.fromkeys([*(allow or ()), *(deny or ())])
    if compat and principals:
        run.console.verbatim(listed_by_principal(compat, principals, acls))
    elif compat:
        run.console.verbatim(listed(compat, acls))
    else:
        run.console.show(LIST_COLUMNS, [acl_row(binding) for binding in acls])
    return ExitStatus.DONE
