"""CLIPScore (Hessel et al., EMNLP 2021), PAC-S (Sarto et al., CVPR 2023), and CLIP."""
