"""`kctl acls`: add, remove, export, apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kctl.admin.security.acls import (
    Resources,
    bindings,
    create_acls,
    delete_acls,
    difference,
    filters,
    list_acls,
    write_document,
)
from kctl.client.outcome import Outcome
from kctl.commands.acls.rules import (
    AclChangeRow,
    DryRun,
    Prefix,
    ResourceOptions,
    RuleOptions,
    change_row,
    hosts_of_new_acls,
    hosts_of_stored_acls,
    hosts_without_effect,
    read_acls,
    resources_of,
    rules_of,
)
from kctl.commands.frame.command import ChangingCommand, ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import BootstrapController, with_groups
from kctl.commands.frame.output.shown import shows
from kctl.errors import UsageError
from kctl.output.quantities import counted
from kctl.security.acls import AclBinding, PatternType

# Shows the outcome of `kctl acls add` and `kctl acls remove`.


def show_planned(run: Invocation, acls: Sequence[AclBinding], status: str) -> ExitStatus:
    """Show the ACLs that a dry run would change."""
    run.console.show(AclChangeRow, [change_row(binding, status) for binding in acls])
    return ExitStatus.DONE


def show_changed(run: Invocation, acls: Sequence[AclBinding], outcomes: Sequence[Outcome], status: str) -> ExitStatus:
    """Show the changed ACLs with their outcomes."""
    rows = [change_row(binding, status, outcome) for binding, outcome in zip(acls, outcomes, strict=True)]
    run.console.show(AclChangeRow, rows)
    return run.status_of(rows)


# `kctl acls add`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "add",
    cls=ChangingCommand,
    epilog=examples(
        "kctl acls add --allow User:bob --operation read --topic orders",
        "kctl acls add --allow User:app --producer --topic orders --transactional-id app",
        "kctl acls add --allow User:app --consumer --topic orders. --group app --prefix",
        "kctl acls add --deny User:bob --operation all --topic secret --host 10.0.0.7 --dry-run",
    ),
)
@shows(AclChangeRow)
@with_groups
def add(
    ctx: typer.Context,
    *,
    resource: ResourceOptions,
    prefix: Prefix = False,
    rule: RuleOptions,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs: write, describe and create on its topics.")
    ] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: IdempotentWrite, for brokers before 2.8.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs: read topics and groups, describe topics.")
    ] = False,
    bootstrap_controller: BootstrapController = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Add ACLs: one for each combination of the principals, hosts, operations and resources.

    It is not an error if an ACL already exists.  An operation that no ACL allows is denied, and ACLs that deny take
    precedence.  Without --host the ACL applies to all hosts.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    resources = resources_of(resource, PatternType.PREFIXED if prefix else PatternType.LITERAL)
    rules = rules_of(rule, hosts_of_new_acls(rule.host))
    acls = bindings(resources, rules, is_producer=producer, is_consumer=consumer, is_idempotent=idempotent)
    if dry_run:
        return show_planned(run, acls, "would be added")
    outcomes = run.on_cluster(lambda client: create_acls(client, acls))
    return show_changed(run, acls, outcomes, "added")


# `kctl acls remove`.


@verbs.command(
    "remove",
    cls=ChangingCommand,
    epilog=examples(
        "kctl acls remove --allow User:bob --topic orders --dry-run",
        "kctl acls remove --allow User:bob --operation read --topic orders --yes",
        "kctl acls remove --topic orders --prefix --yes",
    ),
)
@shows(AclChangeRow)
@with_groups
def remove(
    ctx: typer.Context,
    *,
    resource: ResourceOptions,
    prefix: Prefix = False,
    any_resource: Annotated[
        bool, typer.Option("--any-resource", help="Rules about all resources, exact names and prefixes.")
    ] = False,
    rule: RuleOptions,
    bootstrap_controller: BootstrapController = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Remove the ACLs that the options select, and no others.

    An option that is not given selects everything: --topic orders selects all ACLs of that topic.  Asks for
    confirmation on a terminal; elsewhere --yes is required (exit status 5).  Removing an ACL that denies may allow
    operations.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    resources = resources_to_remove(resource, rule, prefix=prefix, any_resource=any_resource)
    selected = filters(resources, rules_of(rule, hosts_of_stored_acls(rule.host)))
    acls = run.on_cluster(lambda client: list_acls(client, selected))
    if dry_run:
        return show_planned(run, acls, "would be removed")
    if not confirm_removal(run, acls):
        return show_planned(run, acls, "removed")
    outcomes = run.on_cluster(lambda client: delete_acls(client, acls))
    return show_changed(run, acls, outcomes, "removed")


def resources_to_remove(resource: ResourceOptions, rule: RuleOptions, *, prefix: bool, any_resource: bool) -> Resources:
    """Return the resources whose ACLs the options select.  Raises UsageError if these are all ACLs."""
    pattern_type = PatternType.PREFIXED if prefix else PatternType.ANY if any_resource else PatternType.LITERAL
    resources = resources_of(resource, pattern_type)
    if any_resource == bool(resources.named()):
        raise UsageError("give a resource such as --topic orders, or --any-resource")
    if any_resource and not any(rule):
        raise UsageError("--any-resource needs --allow, --deny, --operation or --host")
    return resources


def confirm_removal(run: Invocation, acls: Sequence[AclBinding]) -> bool:
    """Show the ACLs and ask for consent; False if there are none.  Raises Refused."""
    if not acls:
        run.console.note("no ACL is selected")
        return False
    for binding in acls:
        run.console.note(f"  {binding}")
    run.consent(f"Remove {counted(len(acls), 'ACL')}?")
    return True


# `kctl acls export`.


@verbs.command("export", cls=ClusterCommand, epilog=examples("kctl acls export > acls.json"))
def export(ctx: typer.Context, *, bootstrap_controller: BootstrapController = None) -> ExitStatus:
    """Print all ACLs as a JSON document for 'kctl acls apply' and 'kctl acls check --from', whatever --format is.

    The document has one ACL per line in a stable order, so that two exports can be compared as text.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    run.console.verbatim(write_document(run.on_cluster(list_acls)))
    return ExitStatus.DONE


# `kctl acls apply`.


@verbs.command(
    "apply",
    cls=ChangingCommand,
    epilog=examples(
        "kctl acls apply acls.json --dry-run",
        "kctl acls apply acls.json --yes",
        "kctl acls apply acls.json --delete --yes",
        "kctl acls apply acls.json --check",
    ),
)
@shows(AclChangeRow)
def apply(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="Document that 'kctl acls export' wrote.", metavar="FILE")],
    *,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove the ACLs that are not in the document.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit status 3 if the cluster has other ACLs.")
    ] = False,
    bootstrap_controller: BootstrapController = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Add the ACLs of a document that a cluster does not have, and show the ACLs that only the cluster has.

    ACLs are removed only with --delete, after all others have been added.  Asks for confirmation on a terminal;
    elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    if check and (run.has_consent or dry_run):
        raise UsageError("--check changes nothing: leave out --yes and --dry-run")
    requested = read_acls(file)
    for sentence in hosts_without_effect(requested):
        run.console.warn(sentence)
    missing, extra = difference(requested, run.on_cluster(list_acls))
    if check or dry_run:
        kept = "would be removed" if delete else "only in the cluster"
        rows = [change_row(binding, "only in the document" if check else "would be added") for binding in missing]
        rows += [change_row(binding, "only in the cluster" if check else kept) for binding in extra]
        run.console.show(AclChangeRow, rows)
        return ExitStatus.UNMET if check and rows else ExitStatus.DONE
    removed = extra if delete else []
    if not missing and not removed:
        run.console.note("the cluster has all ACLs of the document" + (f" and {len(extra)} more" if extra else ""))
        run.console.show(AclChangeRow, [])
        return ExitStatus.DONE
    run.consent(f"Add {counted(len(missing), 'ACL')} and remove {len(removed)}?")
    rows = []
    if missing:
        outcomes = run.on_cluster(lambda client: create_acls(client, missing))
        rows += [change_row(binding, "added", outcome) for binding, outcome in zip(missing, outcomes, strict=True)]
    if removed and not any(row.error for row in rows):
        outcomes = run.on_cluster(lambda client: delete_acls(client, removed))
        rows += [change_row(binding, "removed", outcome) for binding, outcome in zip(removed, outcomes, strict=True)]
    run.console.show(AclChangeRow, rows)
    return run.status_of(rows)
