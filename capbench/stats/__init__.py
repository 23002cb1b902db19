"""Statistics of agreement with human ratings: arrays in, numbers out."""
