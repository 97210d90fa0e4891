"""Starts a run on every host that it takes, watches it, and starts it again where that is asked for."""
