"""ACLs, users, quotas, tokens and TLS."""
