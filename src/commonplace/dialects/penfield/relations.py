"""The 24 relationship types, by family."""

from __future__ import annotations

FAMILIES: dict[str, dict[str, str]] = {
    "Knowledge Evolution": {
        "supersedes": "Replaces outdated information",
        "updates": "Modifies existing knowledge",
        "evolution_of": "Develops from earlier concept",
    },
    "Evidence & Support": {
        "supports": "Provides evidence for",
        "contradicts": "Challenges existing belief",
        "disputes": "Disagrees with",
    },
    "Hierarchy & Structure": {
        "parent_of": "Encompasses more specific concept",
        "child_of": "Subset of broader concept",
        "sibling_of": "Parallel concept at same level",
        "composed_of": "Contains component parts",
        "part_of": "Belongs to larger structure",
    },
    "Causation": {
        "causes": "Leads to effect/outcome",
        "influenced_by": "Was shaped by",
        "prerequisite_for": "Required for next concept",
    },
    "Implementation & Testing": {
        "implements": "Applies theoretical concept",
        "documents": "Describes system/process",
        "tests": "Verifies or validates",
        "example_of": "Demonstrates general principle",
    },
    "Conversation & Attribution": {
        "responds_to": "Response to previous statement",
        "references": "Refers to or cites",
        "inspired_by": "Inspired or motivated by",
    },
    "Sequence & Flow": {
        "follows": "Comes after in sequence",
        "precedes": "Comes before in sequence",
    },
    "Dependencies": {
        "depends_on": "Requires prerequisite",
    },
}
RELATIONS: tuple[str, ...] = tuple(name for family in FAMILIES.values() for name in family)
