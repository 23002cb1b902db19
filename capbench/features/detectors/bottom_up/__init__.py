"""Bottom-up attention features in the two published families of post-processing."""
