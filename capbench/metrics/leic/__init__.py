"""LEIC (Cui et al., CVPR 2018): a network that tells people's captions of an image from others."""
