"""What ViLBERTScore is made of: options, which tokens are matched, the model with its features, and explanations."""
