"""Commonplace as the memory of agent frameworks; each module needs its framework installed."""
