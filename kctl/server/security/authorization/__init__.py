"""Authorization of requests.

Reading order: `port` (the interface of an authorizer), `access` (the checks that handlers call), `audit` (the log of
decisions), `zookeeper_acls` (Kafka's AclAuthorizer), `loading` (creates the configured authorizer).
"""
