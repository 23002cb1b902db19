"""Caption metrics: one file or folder for each, with the contract in :class:`capbench.metrics.base.Metric`."""
