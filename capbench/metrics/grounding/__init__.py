"""Grounding models (SCAN) of TIGEr and REO: network, weight files, training, encodings and attention."""
