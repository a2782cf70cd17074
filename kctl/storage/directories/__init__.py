"""The log directories of a broker, and the creation of logs in them."""
