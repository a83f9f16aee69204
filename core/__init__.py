"""The building blocks of the harness: types, agents, models, memory, records. Names no env and no workflow."""
