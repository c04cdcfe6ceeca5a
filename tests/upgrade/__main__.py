"""`python -m tests.upgrade` records what this version stores. Once for each release: a recording never changes."""

import sys

from chalicelib import VERSION
from tests.upgrade.recording import RECORDED, record

folder = RECORDED / VERSION
if folder.exists():
    sys.exit(f"upgrade: {folder} exists. Later code must read it as it is; raise chalicelib.VERSION to record anew")
record(folder)
print(f"upgrade: recorded in {folder}")
