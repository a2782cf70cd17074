"""One file per API, named as the API; a handler does not import another."""
