"""Values that all models share."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NEVER_MS = 2**63
