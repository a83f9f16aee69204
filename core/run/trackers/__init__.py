"""Trackers of services, one a file: each hands a run to one package, which loads when it is first used."""
