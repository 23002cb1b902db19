"""Weight files of networks: registry, readers, ensembles, and stored encodings of captions and images."""
