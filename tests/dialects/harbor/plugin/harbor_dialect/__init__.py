"""Ships in a harbor."""

from __future__ import annotations

from commonplace.engine.content.write_policy import Reservation

RESERVED = Reservation(
    owner="the Harbor dialect", reason="its list is made of such memories", kinds=("ship",)
)
