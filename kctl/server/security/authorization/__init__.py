"""Authorization of requests: `access` (the interface of an authorizer, the checks that handlers call, the log of
decisions), `zookeeper_acls` (Kafka's AclAuthorizer), `loading` (creates the configured authorizer).
"""
