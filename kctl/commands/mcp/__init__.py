"""`kctl mcp`: the commands as tools of the Model Context Protocol."""
