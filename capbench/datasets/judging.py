"""Names of :mod:`capbench.datasets.judgement_files`, at their old place until the next version."""

from capbench.datasets.judgement_files import *  # noqa: F403
