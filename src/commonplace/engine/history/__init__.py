"""Operations and undo, the audit log, and stored answers."""
