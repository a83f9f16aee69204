"""ALFWorld: household tasks in TextWorld."""
