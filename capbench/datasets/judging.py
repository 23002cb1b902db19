"""The former name of :mod:`capbench.datasets.judgement_files`, kept until the next version."""

from capbench.datasets.judgement_files import *  # noqa: F403
