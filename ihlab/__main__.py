"""`python -m ihlab` is `ihlab`."""

from ihlab.cli import main

main()
