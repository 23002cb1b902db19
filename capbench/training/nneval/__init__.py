"""Training of NNEval: settings, which captions, their scores, the network."""
