"""Data sets of human judgements: published files in, :class:`~capbench.core.records.Judgements` out."""
