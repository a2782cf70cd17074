"""`kctl acls remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.acl_rules import filters
from kctl.admin.acls import delete_acls, list_acls
from kctl.commands.acls.changes import show_as_kafka, show_changed, show_planned
from kctl.commands.acls.options import (
    Allow,
    Cluster,
    DelegationTokens,
    Deny,
    DryRun,
    Groups,
    Hosts,
    Operations,
    Prefix,
    Topics,
    TransactionalIds,
    Users,
    hosts_of_stored_acls,
    resources_of,
    rules_of,
)
from kctl.commands.acls.rows import AclChangeRow
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.compat.versions import Compat
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.errors import UsageError
from kctl.quantities import counted
from kctl.security.acls import PatternType

app = typer.Typer(add_completion=False)


@app.command(
    "remove",
    cls=ChangingCommand,
    epilog=examples(
        "kctl acls remove --allow User:bob --topic orders --dry-run",
        "kctl acls remove --allow User:bob --operation read --topic orders --yes",
        "kctl acls remove --topic orders --prefix --yes",
    ),
)
@shows(AclChangeRow)
def remove(
    ctx: typer.Context,
    *,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user: Users = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    any_resource: Annotated[
        bool, typer.Option("--any-resource", help="Rules about all resources, exact names and prefixes.")
    ] = False,
    allow: Allow = None,
    deny: Deny = None,
    operation: Operations = None,
    host: Hosts = None,
    dry_run: DryRun = False,
    compat: Compat = None,
) -> ExitStatus:
    """Remove the ACLs that the options select, and no others.

    An option that is not given selects everything: --topic orders selects all ACLs of that topic.  Asks for
    confirmation on a terminal; elsewhere --yes is required (exit status 5).  Removing an ACL that denies may allow
    operations.
    """
    run: Invocation = ctx.obj
    resources = resources_of(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        delegation_tokens=delegation_token,
        users=user,
        cluster=cluster,
        pattern_type=PatternType.PREFIXED if prefix else PatternType.ANY if any_resource else PatternType.LITERAL,
    )
    if any_resource == bool(resources.named()):
        raise UsageError("give a resource such as --topic orders, or --any-resource")
    hosts = host if compat else hosts_of_stored_acls(host)
    rules = rules_of(allow=allow, deny=deny, operations=operation, hosts=hosts)
    if any_resource and not (allow or deny or operation or host):
        raise UsageError("--any-resource needs --allow, --deny, --operation or --host")
    selected = filters(resources, rules)
    acls = run.on_cluster(lambda client: list_acls(client, selected))
    if dry_run:
        return show_planned(run, acls, "would be removed")
    if not acls:
        run.console.note("no ACL is selected")
        return show_as_kafka(run, compat, resources, []) if compat else show_planned(run, acls, "removed")
    for binding in acls:
        run.console.note(f"  {binding}")
    run.consent(f"Remove {counted(len(acls), 'ACL')}?")
    outcomes = run.on_cluster(lambda client: delete_acls(client, acls))
    if compat:
        return show_as_kafka(run, compat, resources, outcomes)
    return show_changed(run, acls, outcomes, "removed")
