"""SCAN (Lee et al., ECCV 2018): the network that TIGEr and REO read, its files, encodings and training."""
