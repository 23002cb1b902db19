"""TIGEr (Jiang et al., EMNLP-IJCNLP 2019): compares the grounding of a caption with that of its references."""
