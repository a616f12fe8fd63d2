"""Similarities that mean the same whatever the model.

Contracts compare similarities with cut-offs chosen for other models: .35 is about related, .5 and
.6 about the same thing, .7 an answer, .85 and .9 says the same. Each model spreads its raw cosines
differently, and only over the scripts it learnt, so a raw cosine goes through a table first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    # Rising pairs of (raw cosine, calibrated similarity), straight lines between them.
    Knots = Sequence[tuple[float, float]]

ANY = "*"

# Measured with the pairs in tests/similarity_pairs.json, raw cosines: unrelated -.14 to .08,
# same topic .13 to .51, question and answer .32 to .80, paraphrase from .73, changed fact up to
# .76, small edit from .93. The seed of MAMA asks for its own decision, at .36, to pass .7.
MINILM_LATIN: Knots = (
    (-0.20, 0.0),
    (0.00, 0.12),
    (0.10, 0.25),
    (0.25, 0.48),
    (0.34, 0.70),
    (0.70, 0.82),
    (0.80, 0.86),
    (0.90, 0.90),
    (1.00, 1.0),
)
# Unrelated texts in scripts it never learnt reach .8, so only all but equal texts count.
MINILM_ELSE: Knots = ((0.90, 0.0), (1.00, 1.0))
# Not measured here: publicly reported, unrelated texts lie at .1 to .2 and related at .4 to .6.
OPENAI_3_SMALL: Knots = (
    (0.00, 0.0),
    (0.15, 0.20),
    (0.30, 0.48),
    (0.42, 0.70),
    (0.70, 0.84),
    (0.90, 0.92),
    (1.00, 1.0),
)
# A model nobody measured: its cosine as it is, within bounds.
AS_IT_IS: Knots = ((0.0, 0.0), (1.0, 1.0))

TABLES: dict[tuple[str, str], Knots] = {
    ("all-MiniLM-L6-v2", "latin"): MINILM_LATIN,
    ("all-MiniLM-L6-v2", ANY): MINILM_ELSE,
    ("text-embedding-3-small", ANY): OPENAI_3_SMALL,
}
# Models that learnt only some scripts; any other is taken to know all.
SCRIPTS: dict[str, frozenset[str]] = {"all-MiniLM-L6-v2": frozenset({"latin"})}

# Text without a letter has no script. ("other" is one: Bengali, Georgian, … reach .8.)
NEUTRAL = frozenset({"none", ""})


def knows_script(model_id: str, script: str) -> bool:
    """Whether the model's similarities mean anything in this script; if not, words decide."""
    return model_id not in SCRIPTS or _plain(script) in SCRIPTS[model_id]


@overload
def calibrated(raw: float, model_id: str, script: str) -> float: ...


@overload
def calibrated(raw: NDArray[Any], model_id: str, script: str) -> NDArray[np.float64]: ...


def calibrated(
    raw: float | NDArray[Any], model_id: str, script: str
) -> float | NDArray[np.float64]:
    """Raw cosines as similarities in 0..1 that contracts' cut-offs fit; it keeps their order."""
    import numpy as np

    script = _plain(script)
    knots = TABLES.get((model_id, script)) or TABLES.get((model_id, ANY)) or AS_IT_IS
    result = np.interp(raw, [knot[0] for knot in knots], [knot[1] for knot in knots])
    return result if isinstance(raw, np.ndarray) else float(result)


def _plain(script: str) -> str:
    return "latin" if script in NEUTRAL else script
