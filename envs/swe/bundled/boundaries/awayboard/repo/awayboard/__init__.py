"""Leave for small teams."""
