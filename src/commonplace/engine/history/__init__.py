"""Operations and undo, the audit, and stored answers."""
