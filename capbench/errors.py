"""The former path of :mod:`capbench.core.errors`, until version 0.4."""

from capbench.core.errors import *  # noqa: F403
from capbench.core.errors import warn_former_name

warn_former_name(__name__, "capbench.core.errors")
