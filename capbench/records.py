"""Names of :mod:`capbench.core.records`, at their old place until the next version."""

from capbench.core.records import *  # noqa: F403
