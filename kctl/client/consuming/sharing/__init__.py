"""Members of share groups (KIP-932): records that brokers hand out one by one, and their acknowledgements."""
