"""NNEval (Sharif et al., ECCV 2018): a network that classifies captions as human or machine-generated."""
