"""The index as of a time in the past, for searches with `as_of`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from commonplace.embedding.provider import Vectors
from commonplace.engine.content.memories import index_entries, usable_vectors
from commonplace.engine.content.projects import labels_of
from commonplace.engine.library import OpenSpace
from commonplace.storage import messages
from commonplace.storage.derived import unpack_matrix
from commonplace.storage.fields import STATES
from commonplace.storage.index import NEVER, POSTING, Snapshot
from commonplace.storage.ports import Rows
from commonplace.storage.tables import Row


def snapshot_at(
    space: OpenSpace,
    connection: Rows,
    snapshot: Snapshot,
    seq: int,
    former: Sequence[tuple[Row, bytes | None]],
    said: Mapping[int, Row],
) -> Snapshot:
    """Return the index as it was after an operation.

    In the returned index, memories that have changed since are not alive; their `former` rows and
    vectors are appended instead. `said` maps the numbers of former messages to their rows.
    """
    codes = _Codes(connection, space.name, snapshot)
    terms, positions, times = (
        [snapshot.tail_terms], [snapshot.tail_positions], [snapshot.tail_times]
    )  # fmt: skip
    columns: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    owners: list[int] = []
    for at, (row, packed) in enumerate(former, start=snapshot.size):
        message = said.get(row["num"])
        item = index_entries(dict(row), "" if message is None else message["speaker"])
        postings = np.frombuffer(item.terms, POSTING)
        terms.append(postings["term"])
        times.append(postings["times"])
        positions.append(np.full(len(postings), at, np.int32))
        vectors = usable_vectors(space, connection, packed, len(item.spans)) or []
        blobs += vectors
        owners += [at] * len(vectors)
        columns.append({
            "num": row["num"], "row_seq": row["seq"], "importance": row["importance"],
            "credit": row["credit"], "pinned": row["pinned"], "created": row["created_at"],
            "occurred": NEVER if row["occurred_at"] is None else row["occurred_at"],
            "kind": codes.kinds.setdefault(row["kind"], len(codes.kinds)),
            "state": STATES.index(row["state"]), "length": int(postings["times"].sum()),
            "project": codes.code_of_labels(labels_of(json.loads(row["tags"]))),
            **codes.message_columns(message),
        })  # fmt: skip
    joined: dict[str, Any] = {}
    for name in columns[0] if columns else ():
        column = getattr(snapshot, name)
        more = np.array([values[name] for values in columns], column.dtype)
        joined[name] = np.concatenate([column, more])
    if blobs and space.embedder is not None:
        matrix, scales = unpack_matrix(b"".join(blobs), space.embedder.dimensions)
        added = Vectors.split(matrix, snapshot.parts).parts
        known = zip(snapshot.vectors.parts, added, strict=True)
        joined["vectors"] = Vectors(tuple(np.concatenate(pair) for pair in known))
        joined["scales"] = np.concatenate([snapshot.scales, scales])
        joined["owner"] = np.concatenate([snapshot.owner, np.array(owners, np.int32)])
        joined["vectored"] = snapshot.vectored + len(set(owners))
    alive = np.concatenate([snapshot.alive & (snapshot.row_seq <= seq),
                            np.ones(len(former), np.bool_)])  # fmt: skip
    return replace(
        snapshot, **joined, alive=alive, kinds=codes.kinds, speakers=codes.speakers,
        projects=codes.projects, sessions=codes.sessions, tail_terms=np.concatenate(terms),
        tail_positions=np.concatenate(positions), tail_times=np.concatenate(times),
    )  # fmt: skip


class _Codes:
    """The numeric codes that the index uses for kinds, speakers, projects and sessions."""

    def __init__(self, connection: Rows, space: str, snapshot: Snapshot) -> None:
        self.kinds, self.speakers = dict(snapshot.kinds), dict(snapshot.speakers)
        self.projects, self.sessions = dict(snapshot.projects), snapshot.sessions
        self._sessions: dict[tuple[str, str], int] = {}
        self._connection, self._space, self._snapshot = connection, space, snapshot

    def code_of_labels(self, labels: Sequence[str]) -> int:
        """Return the code of a memory's project and branch labels, a new one if needed.

        The code is -1 if there are no labels.
        """
        key = tuple(sorted(labels))
        return self.projects.setdefault(key, len(self.projects)) if key else -1

    def message_columns(self, message: Row | None) -> dict[str, int]:
        """Return a message's values of the columns `session`, `place` and `speaker`.

        `message` is None for a memory that is no message.
        """
        if message is None:
            return {"session": -1, "place": 0, "speaker": -1}
        name = (message["conversation"], message["session"])
        if name not in self._sessions:
            # The code of a session that still has messages can be read from any memory of the
            # session.
            num = messages.any_memory(self._connection, self._space, *name)
            at = np.flatnonzero(self._snapshot.num == (-1 if num is None else num))
            if len(at):
                self._sessions[name] = int(self._snapshot.session[at[-1]])
            else:
                self._sessions[name] = self.sessions
                self.sessions += 1
        speaker = self.speakers.setdefault(message["speaker"], len(self.speakers))
        place = message["position"]
        return {"session": self._sessions[name], "place": place, "speaker": speaker}
