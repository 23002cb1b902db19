"""Data sets of human judgements: published files in, :class:`~capbench.records.Judgements` out."""
