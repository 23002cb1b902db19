"""FAIEr (Wang et al., CVPR 2021): scene graphs of image, references and candidate, matched by a trained network."""
