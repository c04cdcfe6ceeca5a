"""`python -m decant.cli`, as `decant`."""

from decant.cli import main

main(prog_name="decant")
