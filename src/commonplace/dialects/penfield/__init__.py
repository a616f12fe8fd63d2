"""The Penfield dialect: memories with types, a graph of 24 relations, checkpoints, artifacts."""

from __future__ import annotations

from commonplace.engine.content.write_policy import Reservation

RESERVED = Reservation(
    owner="the Penfield dialect",
    reason="a persona is made of such memories",
    kinds=("identity_core", "personality_trait"),
)
