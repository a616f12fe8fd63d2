"""What happened: operations and undo, the past, the audit, kept answers."""
