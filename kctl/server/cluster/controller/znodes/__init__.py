"""The controller's znodes: election, reading and watching, writing."""
