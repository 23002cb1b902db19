"""Training of ViLBERT: settings, data, batches, losses, evaluation."""
