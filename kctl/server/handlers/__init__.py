"""One module per API, named after the API; handlers do not import each other."""
