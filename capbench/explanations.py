"""Names of :mod:`capbench.core.explanations`, at their old place until the next version."""

from capbench.core.explanations import *  # noqa: F403
