"""What a KRaft cluster has instead of ZooKeeper: metadata records, a snapshot of them, and properties."""
