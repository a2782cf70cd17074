"""The partitions of this broker: partition (roles and the high watermark), fetch_session, replica_manager."""
