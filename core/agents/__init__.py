"""How a task is opened and a reply is read; agents that need no model."""
