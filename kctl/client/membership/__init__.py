"""State machine of a consumer group member.  Pure: `step` decides, kctl.client.group_consumer performs."""
