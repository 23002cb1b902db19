"""Training of networks: loop, settings, run folders, and batches of captions and regions."""
