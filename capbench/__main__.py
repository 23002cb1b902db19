"""``python -m capbench`` is the same as ``capbench``."""

from capbench.cli.app import main

main()
