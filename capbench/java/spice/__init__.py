"""SPICE's parser on today's Java: its files, and the process that runs it."""
