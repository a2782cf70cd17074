"""The parts of a broker and their connections, and its ZooKeeper session."""
