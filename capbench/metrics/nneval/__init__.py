"""NNEval (Sharif et al., ECCV 2018): a network that tells people's captions from machines'."""
