"""The REST operations behind the pages at /viewer; MCP does not list them."""
