"""Weight files of networks: registry, readers, ensembles, and encodings of captions and images."""
