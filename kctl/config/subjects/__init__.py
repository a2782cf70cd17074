"""The broker's properties, one module per subject; `kctl.config.broker.BrokerConfig` is all of them together."""
