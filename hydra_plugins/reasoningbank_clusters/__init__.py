"""Launchers that run a sweep's cells on a cluster. Hydra looks for such plugins in `hydra_plugins` alone."""
