"""Names of :mod:`capbench.features.class_names`, at their old place until the next version."""

from capbench.features.class_names import *  # noqa: F403
