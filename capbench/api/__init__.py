"""The functions of ``import capbench``, which the command line also calls."""
