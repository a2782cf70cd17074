"""Texts of Kafka's tools for states that are hard to bring about beside them."""

from __future__ import annotations

import importlib
from pathlib import Path
from uuid import UUID

import kctl
from kctl.admin.placement.reassignment import Ongoing
from kctl.admin.topics.configs import ConfigEntry, ConfigResource, ResourceType
from kctl.client.metadata import Topic
from kctl.commands.compat.registration import IMITATIONS
from kctl.commands.compat.texts import resources, topics
from kctl.commands.frame.options.parameters import flags_of, help_of
from kctl.commands.frame.root import all_commands
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from tests.unit.admin.clusters import partition
from tests.unit.commands.conftest import Kctl

ORDERS = TopicPartition("orders", 0)


def test_topic_that_is_reassigned_and_without_leader() -> None:
    topic = Topic("orders", UUID(int=0), False, (partition(0, (1, 2, 3), leader=-1, isr=(1,)),), ErrorCode.NONE)
    ongoing = {ORDERS: Ongoing((1, 2, 3), adding=(3,), removing=(1,))}
    assert topics.described("kafka-2.8", [topic], {}, ongoing) == (
        "Topic: orders\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: \n"
        "\tTopic: orders\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1"
        "\tAdding Replicas: 3\tRemoving Replicas: 1\n"
    )
    assert topics.described("kafka-3", [topic], {}, ongoing, {"orders": [0]}) == (
        "\tTopic: orders\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1"
        "\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: N/A\tLastKnownElr: N/A\n"
    )
    assert topics.described("kafka-3", [topic], {}, {}, {}) == ""
    assert topics.listed([]) == "\n"


def test_value_of_a_sensitive_property_is_null() -> None:
    entry = ConfigEntry("ssl.key.password", None, "DYNAMIC_BROKER_CONFIG", False, True, ())
    assert resources.described("kafka-3", ConfigResource(ResourceType.BROKER, "1"), [entry]) == (
        "Dynamic configs for broker 1 are:\n  ssl.key.password=null sensitive=true synonyms={}\n"
    )


def test_invalid_options_of_compat_are_refused(kctl: Kctl) -> None:
    for line in (
        "configs describe topic orders --property retention.ms --compat kafka-3",
        "configs describe topic orders --client app",
    ):
        assert kctl(line).status == 2


def test_registration_is_the_only_place_that_knows_of_the_views() -> None:
    for view in (imitation.view.split(":") for imitation in IMITATIONS.values()):
        assert callable(getattr(importlib.import_module(f"kctl.commands.compat.{view[0]}"), view[1]))
    offering = {
        " ".join(dict.fromkeys((noun, verb))).replace("dump-log", "dump_log")
        for noun, verbs in all_commands().items()
        for verb, command in verbs.items()
        if any("--compat" in flags_of(param) for param in command.params)
    }
    assert offering == set(IMITATIONS)
    package = Path(kctl.__file__).parent
    own = package / "commands" / "compat"
    importing = [
        path.name
        for path in package.rglob("*.py")
        if own not in path.parents and "kctl.commands.compat" in path.read_text()
    ]
    assert sorted(importing) == ["lazy_group.py", "warm_process.py"], "the second imports it before it is used"


def test_help_states_what_holds_for_every_compat_option() -> None:
    commands = [command for verbs in all_commands().values() for command in verbs.values()]
    helps = [help_of(param) for command in commands for param in command.params if "--compat" in flags_of(param)]
    assert len(helps) > 15
    assert all("on stdout; the exit status stays that of kctl" in text for text in helps)
