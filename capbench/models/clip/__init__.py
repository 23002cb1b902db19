"""CLIP: images and texts as vectors in one space (Radford et al., ICML 2021), from weights that a user has."""
