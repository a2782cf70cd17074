"""Large znodes, notifications of changes, and the log of unusable data in ZooKeeper."""
