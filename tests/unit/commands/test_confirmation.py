"""Every command that changes something takes --yes and --dry-run, so that scripts need not know which ones ask."""

from __future__ import annotations

import pytest

from kctl.commands.frame.command import ChangingCommand, LocalChange
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.parameters import flags_of
from kctl.commands.frame.root import all_commands
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl

WITHOUT_DRY_RUN = {
    "produce": "reads records from stdin once",
    "reassign verify": "Kafka's command, which removes throttles of moves that have ended",
    "tokens create": "changes nothing that exists",
}
CHANGES = {
    noun if noun == verb else f"{noun} {verb}": command
    for noun, verbs in all_commands().items()
    for verb, command in verbs.items()
    if isinstance(command, (ChangingCommand, LocalChange))
}


@for_rows("name", sorted(CHANGES))
def test_changing_command_takes_yes_and_dry_run(name: str) -> None:
    flags = {flag for param in CHANGES[name].own_params for flag in flags_of(param)}
    assert {"--yes", "-y"} <= flags
    assert ("--dry-run" in flags) == (name not in WITHOUT_DRY_RUN)


@pytest.mark.usefixtures("cluster")
def test_command_that_does_not_ask_accepts_yes(kctl: Kctl) -> None:
    assert kctl("topics create orders --partitions 2 --yes").status == ExitStatus.DONE
    assert kctl("--yes topics alter orders --partitions 3").status == ExitStatus.DONE
