"""The command line: one file per command, which parses arguments, calls :mod:`capbench.api` and prints."""
