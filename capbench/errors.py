"""Names of :mod:`capbench.core.errors`, at their old place until the next version."""

from capbench.core.errors import *  # noqa: F403
