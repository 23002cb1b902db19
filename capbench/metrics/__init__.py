"""Caption metrics: one a file, one contract (:class:`capbench.metrics.base.Metric`)."""
