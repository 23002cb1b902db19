"""Networks, one a file, the reading of their checkpoints, and the registry of weights."""
