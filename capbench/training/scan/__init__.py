"""Training of SCAN: settings, data, batches, losses, evaluation."""
