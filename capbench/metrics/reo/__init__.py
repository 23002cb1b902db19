"""REO (Jiang et al., EMNLP-IJCNLP 2019): relevance, extraness and omission of a caption."""
