"""LEIC (Cui et al., CVPR 2018): a network that classifies captions of an image as human-written or not."""
