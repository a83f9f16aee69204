"""The memory bank over MCP (`reasoningbank serve --bank PATH`), and around any command (`reasoningbank run`).

__main__        the command line: it serves, or runs one of the commands below
server          the SDK's server with the tools of a profile
http            the same over HTTP: who may call (tokens, oauth)
service         the open bank behind the tools
extraction      from a client's attempt to lessons, at once or from the queue; audit keeps a sample of them
run             `reasoningbank run`, with agent_commands, run_command, task_memory and run_records
cli, hooks      a tool as a command; `hook retrieve` and `hook extract` for a client's hooks
config          config/mcp.yaml, presets, the settings file; foreign_config reads those of other systems (foreign/)
texts, checks   what a client's model reads; what a caller may give
"""
