"""State machine of a consumer group member.  Pure: `step` decides, kctl.client.membership_runner performs."""
