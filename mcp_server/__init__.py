"""The memory bank as an MCP server: python -m mcp_server --bank PATH. No other package imports this one."""
