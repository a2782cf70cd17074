"""The other brokers: what UpdateMetadata says about the cluster, and the connections to them."""
