"""The messages of ZooKeeper's protocol: numbers, requests, responses."""
