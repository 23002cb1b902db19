"""Models and word vectors that can be trained here, one a file."""
