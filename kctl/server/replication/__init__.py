"""Partition replicas of this broker: partition (role and high watermark), replica_manager, and in packages `fetching`
(what clients and followers read) and `follower` (what this broker reads from leaders).
"""
