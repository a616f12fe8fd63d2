"""The HTTP and stdio server: authentication, rate limits, MCP and REST."""
