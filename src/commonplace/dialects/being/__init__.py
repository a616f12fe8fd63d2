"""The Being dialect: the memory of a persona, which a periodic patrol consolidates."""

from __future__ import annotations

from collections.abc import Mapping

from commonplace.engine.content.write_policy import NUMBER, Reservation

RESERVED = Reservation(
    owner="the Being dialect",
    reason="a Being takes its instructions and its context from such memories",
    kinds=("being", "being.*"),
    tags=("being:*", "being-history"),
    own_records=(
        "being", "being.soul", "being.scene", "being.note", "being.preference", "being.knowledge",
        "being.relationship", "being.relation", "being.tool", "being.map", "being.diary",
        "being.rule", "being.party", "being.thought", "being.capability", "being.act",
    ),
    shapes={
        "being.capability": {
            "capability": {
                **dict.fromkeys(("id", "type", "name", "description"), str),
                "config": Mapping,
            },
        },
        "being.rule": {"category?": str, "sort_order?": NUMBER, "enabled?": bool},
        "being.scene": {"scene?": Mapping},
        "being.note": {"type?": str},
        "being.party": {"from?": str},
    },
)  # fmt: skip
