"""What stands in the way of a migration from ZooKeeper to KRaft; reads only."""
