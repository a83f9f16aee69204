"""The sweeper of experiment=verdict. Hydra looks for such plugins in `hydra_plugins` alone."""
