"""Authorization of requests.

Reading order: `port` (what an authorizer is), `access` (what handlers ask), `audit` (the log of decisions),
`zookeeper_acls` (Kafka's AclAuthorizer), `loading` (which authorizer the properties name).
"""
