"""Whatever happens to memories, what was linked stays linked."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penfield.conftest import opened, quick_folder

MEMORIES = 4
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["update", "evolve", "retag", "deprecate", "link"]),
        st.integers(0, MEMORIES - 1),
        st.integers(0, MEMORIES - 1),
    ),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(STEPS)
def test_links_survive_versions(steps: list[tuple[str, int, int]]) -> None:
    with quick_folder() as folder, opened(folder / "data", None) as tools:
        current = [tools("store", content=f"memory {i}")["id"] for i in range(MEMORIES)]
        linked: set[tuple[int, int]] = set()
        for at, (step, one, other) in enumerate(steps):
            if step == "link":
                if one != other and (one, other) not in linked:
                    tools("connect", from_memory=current[one], to_memory=current[other],
                          relationship_type="supports")  # fmt: skip
                    linked.add((one, other))
            elif step == "update":
                tools("update_memory", memory_id=current[one], content=f"text {at}")
            elif step == "retag":
                tools("update_memory", memory_id=current[one], tags=[f"t{at}"])
            else:
                kind = "update" if step == "evolve" else "deprecation"
                evolved = tools("evolve_memory", id=current[one], new_content=f"text {at}",
                                evolution_type=kind)  # fmt: skip
                current[one] = evolved["new_memory_id"]
            live = {identity: place for place, identity in enumerate(current)}
            between = {
                (live[link.source], live[link.target])
                for link in tools.memory.links.of()
                if link.kind == "supports" and link.source in live and link.target in live
            }
            assert between == linked
            for place, identity in enumerate(current):
                walked = tools("explore", start_memory=identity, max_depth=1)
                beside = {live[path["nodes"][-1]] for path in walked["paths"]}
                assert beside == {b for a, b in linked if a == place} | {
                    a for a, b in linked if b == place
                }
