"""Deprecated name of :mod:`capbench.features.class_names`, until the next version."""

from capbench.features.class_names import *  # noqa: F403
