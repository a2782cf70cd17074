"""Security rules that the broker, the clients and the commands share: ACLs, SASL mechanisms, TLS settings."""
