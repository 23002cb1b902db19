"""Training of FAIEr: settings, data, batches, evaluation, and the rows of the paper's Table 4."""
