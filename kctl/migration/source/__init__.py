"""What a cluster stores in ZooKeeper."""
