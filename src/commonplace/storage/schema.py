"""The tables of a space, and the migration steps for older files.

Every table has a column `space`, so that the same statements work on an engine where spaces share
tables. The tables declared in `tables.py` have row hashes, and those in its `VERSIONED` keep former
rows in `versions`. Most other tables are derived from these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import apsw

APPLICATION_ID = 0x434D504C  # The application id in the file's header: "CMPL".

_V1 = """
CREATE TABLE head (
  space TEXT NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, next_num BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE TABLE operations (
  num BIGINT NOT NULL, space TEXT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL,
  name TEXT NOT NULL, origin TEXT NOT NULL, undoes BIGINT, hash BLOB NOT NULL,
  PRIMARY KEY (space, num)
) WITHOUT ROWID;
CREATE UNIQUE INDEX operations_id ON operations (space, id);
CREATE INDEX operations_at ON operations (space, at);
CREATE INDEX operations_undoes ON operations (space, undoes) WHERE undoes IS NOT NULL;

CREATE TABLE memories (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
  title TEXT NOT NULL, text TEXT NOT NULL, tags TEXT NOT NULL, importance DOUBLE PRECISION NOT NULL,
  confidence DOUBLE PRECISION NOT NULL, credit DOUBLE PRECISION NOT NULL, state TEXT NOT NULL,
  pinned BIGINT NOT NULL, occurred_at BIGINT, created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL, ref TEXT, attrs TEXT NOT NULL, origin TEXT NOT NULL,
  trust TEXT NOT NULL, seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX memories_id ON memories (space, id);
CREATE UNIQUE INDEX memories_ref ON memories (space, ref) WHERE ref IS NOT NULL;
CREATE INDEX memories_seq ON memories
  (space, seq, num, kind, state, importance, credit, pinned, occurred_at, created_at);
CREATE INDEX memories_kind ON memories (space, kind, created_at);

CREATE TABLE messages (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, memory BIGINT NOT NULL, conversation TEXT NOT NULL,
  session TEXT NOT NULL, position BIGINT NOT NULL, speaker TEXT NOT NULL,
  seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX messages_memory ON messages (space, memory);
CREATE UNIQUE INDEX messages_place ON messages (space, conversation, position);
CREATE INDEX messages_seq ON messages (space, seq, memory, conversation, session, position, speaker);

CREATE TABLE links (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL,
  target TEXT NOT NULL, kind TEXT NOT NULL, weight DOUBLE PRECISION NOT NULL, reason TEXT NOT NULL,
  attrs TEXT NOT NULL, origin TEXT NOT NULL, created_at BIGINT NOT NULL,
  seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX links_id ON links (space, id);
CREATE UNIQUE INDEX links_edge ON links (space, source, target, kind);
CREATE INDEX links_target ON links (space, target);
CREATE INDEX links_seq ON links (space, seq);

CREATE TABLE facts (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, id TEXT NOT NULL, subject TEXT NOT NULL,
  predicate TEXT NOT NULL, object TEXT NOT NULL, subject_key TEXT NOT NULL,
  predicate_key TEXT NOT NULL, object_key TEXT NOT NULL, valid_from BIGINT, valid_to BIGINT,
  confidence DOUBLE PRECISION NOT NULL, memory TEXT, attrs TEXT NOT NULL, origin TEXT NOT NULL,
  created_at BIGINT NOT NULL, seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX facts_id ON facts (space, id);
CREATE INDEX facts_subject ON facts (space, subject_key, predicate_key);
CREATE INDEX facts_object ON facts (space, object_key);
CREATE INDEX facts_memory ON facts (space, memory) WHERE memory IS NOT NULL;
CREATE INDEX facts_seq ON facts (space, seq);

CREATE TABLE clusters (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL,
  digest TEXT NOT NULL, parent TEXT, centroid BLOB, attrs TEXT NOT NULL, origin TEXT NOT NULL,
  created_at BIGINT NOT NULL, seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX clusters_id ON clusters (space, id);
CREATE INDEX clusters_seq ON clusters (space, seq);
CREATE TABLE members (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, cluster TEXT NOT NULL, memory TEXT NOT NULL,
  seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX members_pair ON members (space, cluster, memory);
CREATE INDEX members_memory ON members (space, memory);
CREATE INDEX members_seq ON members (space, seq);

CREATE TABLE artifacts (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, id TEXT NOT NULL, path TEXT, title TEXT NOT NULL,
  media_type TEXT NOT NULL, version BIGINT NOT NULL, status TEXT NOT NULL, state TEXT NOT NULL,
  attrs TEXT NOT NULL, origin TEXT NOT NULL, created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL, seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX artifacts_id ON artifacts (space, id);
CREATE UNIQUE INDEX artifacts_path ON artifacts (space, path) WHERE path IS NOT NULL AND state = 'active';
CREATE INDEX artifacts_seq ON artifacts (space, seq);
CREATE TABLE contents (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, artifact TEXT NOT NULL, version BIGINT NOT NULL,
  content BLOB NOT NULL, summary TEXT NOT NULL, origin TEXT NOT NULL, created_at BIGINT NOT NULL,
  seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE UNIQUE INDEX contents_version ON contents (space, artifact, version);
CREATE INDEX contents_seq ON contents (space, seq);
CREATE TABLE reviews (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, artifact TEXT NOT NULL, version BIGINT NOT NULL,
  reviewer TEXT NOT NULL, outcome TEXT NOT NULL, comments TEXT NOT NULL, origin TEXT NOT NULL,
  created_at BIGINT NOT NULL, seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE INDEX reviews_artifact ON reviews (space, artifact, version);
CREATE INDEX reviews_seq ON reviews (space, seq);

CREATE TABLE events (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
  at BIGINT NOT NULL, payload TEXT, payload_hash BLOB NOT NULL, seq BIGINT NOT NULL, hash BLOB NOT NULL
);
CREATE INDEX events_kind ON events (space, kind, num);
CREATE INDEX events_subject ON events (space, subject, num);

CREATE TABLE versions (
  space TEXT NOT NULL, entity TEXT NOT NULL, num BIGINT NOT NULL, since BIGINT NOT NULL,
  until BIGINT NOT NULL, row TEXT NOT NULL, vectors BLOB, hash BLOB NOT NULL,
  PRIMARY KEY (space, entity, num, until)
) WITHOUT ROWID;
CREATE INDEX versions_until ON versions (space, until, entity, num);
CREATE INDEX versions_since ON versions (space, since, entity, num);

CREATE TABLE touches (
  space TEXT NOT NULL, memory BIGINT NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (space, seq, memory)
) WITHOUT ROWID;

CREATE TABLE counters (
  space TEXT NOT NULL, memory BIGINT NOT NULL, accesses BIGINT NOT NULL,
  last_access BIGINT NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (space, memory)
) WITHOUT ROWID;

CREATE TABLE models (
  num INTEGER PRIMARY KEY, id TEXT NOT NULL, weights TEXT NOT NULL, dimensions BIGINT NOT NULL
);
CREATE UNIQUE INDEX models_identity ON models (id, weights);
CREATE TABLE lexemes (
  memory INTEGER PRIMARY KEY, space TEXT NOT NULL, analysis BIGINT NOT NULL, terms BLOB NOT NULL,
  sum BIGINT NOT NULL
);
CREATE TABLE passages (
  memory BIGINT NOT NULL, ordinal BIGINT NOT NULL, space TEXT NOT NULL, start BIGINT NOT NULL,
  stop BIGINT NOT NULL, model BIGINT, vector BLOB, sum BIGINT NOT NULL,
  PRIMARY KEY (memory, ordinal)
) WITHOUT ROWID;
CREATE INDEX passages_model ON passages (space, model, memory);
CREATE TABLE labels (
  space TEXT NOT NULL, label TEXT NOT NULL, memory BIGINT NOT NULL,
  PRIMARY KEY (space, label, memory)
) WITHOUT ROWID;
CREATE INDEX labels_memory ON labels (space, memory);
CREATE VIRTUAL TABLE grams USING fts5(
  body, tokenize = 'trigram case_sensitive 1', content = '', contentless_delete = 1, detail = none
);
INSERT INTO grams (grams, rank) VALUES ('secure-delete', 1);

CREATE TABLE outbox (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
  payload TEXT NOT NULL, attempts BIGINT NOT NULL, due_at BIGINT NOT NULL,
  claimed_until BIGINT NOT NULL, last_error TEXT NOT NULL, created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX outbox_subject ON outbox (space, kind, subject);
"""

# Every call with its arguments and result. Each row contains the hash of the previous one. Payloads
# may be purged; their hashes stay. `audit_head` has the number of rows.
AUDIT = """
CREATE TABLE audit (
  num INTEGER PRIMARY KEY, space TEXT NOT NULL, at BIGINT NOT NULL, request TEXT NOT NULL,
  dialect TEXT NOT NULL, tool TEXT NOT NULL, caller TEXT NOT NULL, credential TEXT NOT NULL,
  client TEXT NOT NULL, session TEXT NOT NULL, address TEXT NOT NULL, success BIGINT NOT NULL,
  error TEXT NOT NULL, milliseconds BIGINT NOT NULL, operation BIGINT NOT NULL,
  arguments TEXT, arguments_hash BLOB NOT NULL, result TEXT, result_hash BLOB NOT NULL,
  previous BLOB NOT NULL, hash BLOB NOT NULL
);
CREATE INDEX audit_tool ON audit (space, tool, num);
CREATE INDEX audit_at ON audit (space, at);
CREATE TABLE audit_head (
  space TEXT NOT NULL PRIMARY KEY, rows BIGINT NOT NULL, hash BLOB NOT NULL
);
"""

# Results of calls with an idempotency key, so that a retry does not repeat the call's effects.
_ANSWERS = """
CREATE TABLE answers (
  space TEXT NOT NULL, key BLOB NOT NULL, at BIGINT NOT NULL, result TEXT NOT NULL,
  sum BLOB NOT NULL, PRIMARY KEY (space, key)
) WITHOUT ROWID;
CREATE INDEX answers_at ON answers (space, at);
"""

# Files that are copies of memories, in the state in which row and file last matched. `root` is the
# id of the directory. A row whose `sum` does not match is ignored.
_FILES = """
CREATE TABLE files (
  space TEXT NOT NULL, root TEXT NOT NULL, memory BIGINT NOT NULL, path TEXT NOT NULL,
  size BIGINT NOT NULL, mtime BIGINT NOT NULL, inode BIGINT NOT NULL, digest BLOB NOT NULL,
  rendered BLOB NOT NULL, seq BIGINT NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (space, root, memory)
) WITHOUT ROWID;
"""

# Models belong to a space, too. A space without operations has no vectors.
MODELS = """
ALTER TABLE models ADD COLUMN space TEXT NOT NULL DEFAULT '';
DELETE FROM models WHERE NOT EXISTS (SELECT 1 FROM head);
UPDATE models SET space = (SELECT space FROM head);
DROP INDEX models_identity;
CREATE UNIQUE INDEX models_identity ON models (space, id, weights);
"""

# Row formats: see tables.py. An added column has a constant default, so no row is rewritten.
AUDIT_FORMAT = "ALTER TABLE audit ADD COLUMN format BIGINT NOT NULL DEFAULT 1;\n"
_FORMATS = (
    AUDIT_FORMAT
    + "".join(
        f"ALTER TABLE {table} ADD COLUMN format BIGINT NOT NULL DEFAULT 1;\n"
        for table in ("head", "operations", "memories", "messages", "links", "facts", "clusters",
                      "members", "artifacts", "contents", "reviews", "events", "versions",
                      "counters", "answers", "files")
    )
    + """
ALTER TABLE head ADD COLUMN operation TEXT NOT NULL DEFAULT '';
ALTER TABLE memories ADD COLUMN source TEXT NOT NULL DEFAULT '';
"""
)  # fmt: skip

# Vectors are written outside of operations. Each batch has the next number of `head.derived`, by
# which the in-memory indexes find new vectors. Memories from calls (lane 0) are embedded before
# imported memories and memories that are embedded again (lane 1).
_VECTORS = """
ALTER TABLE head ADD COLUMN derived BIGINT NOT NULL DEFAULT 0;
ALTER TABLE passages ADD COLUMN change BIGINT NOT NULL DEFAULT 0;
CREATE INDEX passages_change ON passages (space, change) WHERE change > 0;
ALTER TABLE outbox ADD COLUMN lane BIGINT NOT NULL DEFAULT 0;
"""

# A step is SQL, or a function that gets the connection inside the step's transaction.
Step = str | Callable[[apsw.Connection], None]

MIGRATIONS: tuple[Step, ...] = (_V1, AUDIT + _ANSWERS, _FILES, MODELS, _FORMATS, _VECTORS)


_ADDED = re.compile(r"ALTER TABLE (\w+) ADD COLUMN ([^;]+);\n")
# The beginning of CREATE TABLE, up to the place where SQLite inserts an added column.
_COLUMNS = re.compile(r"CREATE TABLE (\w+) \([^;]*?(?=,\s+PRIMARY KEY \(|(?<=\n)\))")


def steps_for_new_file(steps: Sequence[Step]) -> Sequence[Step]:
    """Return steps that give an empty file the same schema in less than half the time.

    Columns that later steps add become part of CREATE TABLE. If a step is a function, or adds a
    column to a table that no step creates, all steps are returned unchanged.
    """
    whole = ";\n".join(step for step in steps if isinstance(step, str))
    added: dict[str, list[str]] = {}
    for table, column in _ADDED.findall(whole):
        added.setdefault(table, []).append(column)
    created = _COLUMNS.sub(
        lambda found: ", ".join([found[0], *added.pop(found[1], ())]), _ADDED.sub("", whole)
    )
    return steps if added or not all(isinstance(step, str) for step in steps) else (created,)
