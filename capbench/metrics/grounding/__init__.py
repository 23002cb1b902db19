"""Grounding models (SCAN), which TIGEr and REO share: network, weight files, training, attention and encodings."""
