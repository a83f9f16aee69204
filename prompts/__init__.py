"""All prompts, one Jinja template a file; `registry` names and renders them."""
