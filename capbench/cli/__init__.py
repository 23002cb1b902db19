"""The command line: one command a file; parse, call, print."""
