"""A member of a consumer group, from its own side.  Pure: `step` decides, kctl.client.group_consumer performs."""
