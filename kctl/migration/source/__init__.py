"""What a cluster has: its znodes, and the inventories of its nodes."""
