"""ViLBERT: the network, its files, and quick encoding of captions with their images."""
