"""The bank over MCP: python -m mcp_server --bank PATH. Nothing else imports this."""
