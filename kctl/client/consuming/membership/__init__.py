"""State machine of a consumer group member.  Pure: `step` decides, kctl.client.consuming.membership.runner performs."""
