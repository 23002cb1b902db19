"""The former path of :mod:`capbench.features.class_names`, until version 0.4."""

from capbench.core.errors import warn_former_name
from capbench.features.class_names import *  # noqa: F403

warn_former_name(__name__, "capbench.features.class_names")
