"""The controller's requests, and the metadata that they bring."""
