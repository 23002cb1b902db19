"""What metrics over a grounding model share: the source of encodings, grounding vectors, the covariance of REO."""
