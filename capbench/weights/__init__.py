"""Weight files of networks: which are known, how they are read, several as one, and what they made of captions and
images."""
