"""Names of :mod:`capbench.core.options`, at their old place until the next version."""

from capbench.core.options import *  # noqa: F403
