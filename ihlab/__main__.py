"""Run the command `ihlab` as `python -m ihlab`."""

from ihlab.cli import main

main()
