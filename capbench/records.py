"""The former path of :mod:`capbench.core.records`, until version 0.4."""

from capbench.core.errors import warn_former_name
from capbench.core.records import *  # noqa: F403

warn_former_name(__name__, "capbench.core.records")
