"""ListConfigResources: the resources of the requested types, as a broker of Apache Kafka 4.3.1 lists them."""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.protocol.apis.list_config_resources import ListConfigResourcesRequest
from kctl.server.handlers.list_config_resources import ListConfigResourcesHandler
from tests.unit.handlers.world import World, exchange, play

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPICS, BROKERS, LOGGERS = [("a", TOPIC), ("b", TOPIC)], [("0", BROKER), ("1", BROKER)], [("0", LOGGER), ("1", LOGGER)]
GROUPS = [("g", GROUP)]


def test_resources_of_the_requested_types_are_listed() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        await world.topic("b", (0, 1))
        world.configs.set_group("g", {"consumer.session.timeout.ms": "60000"})
        handler = ListConfigResourcesHandler(world.configs, world.metadata)
        for version, types, code, expected in (
            (0, [], ErrorCode.NONE, []),
            (1, [], ErrorCode.NONE, [*TOPICS, *BROKERS, *LOGGERS, *GROUPS]),
            (1, [TOPIC], ErrorCode.NONE, TOPICS),
            (1, [LOGGER, BROKER, LOGGER], ErrorCode.NONE, [*BROKERS, *LOGGERS]),
            (1, [CLIENT_METRICS], ErrorCode.NONE, []),
            (1, [GROUP], ErrorCode.NONE, GROUPS),
            (1, [TOPIC, 64], ErrorCode.UNSUPPORTED_VERSION, []),
            (1, [0], ErrorCode.UNSUPPORTED_VERSION, []),
        ):
            request = ListConfigResourcesRequest(resource_types=types) if version else ListConfigResourcesRequest()
            response = await exchange(handler.handle, request, version)
            listed = sorted((resource.resource_name, resource.resource_type) for resource in response.config_resources)
            assert (response.error_code, listed) == (code, sorted(expected)), (version, types)

    play(scene, others=1)
