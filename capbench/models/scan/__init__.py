"""SCAN (Lee et al., ECCV 2018): the network, its fast path, and its files."""
