"""The former path of :mod:`capbench.datasets.judgement_files`, until version 0.4."""

from capbench.core.errors import warn_former_name
from capbench.datasets.judgement_files import *  # noqa: F403

warn_former_name(__name__, "capbench.datasets.judgement_files")
