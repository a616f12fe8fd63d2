"""The records of a workspace."""

from __future__ import annotations

from commonplace.dialects.orchestrator import RESERVED
from commonplace.platform.records import Records

records = Records(RESERVED)
