"""Partition replicas of this broker: partition (roles and high watermark), fetch_session, replica_manager, fetcher."""
