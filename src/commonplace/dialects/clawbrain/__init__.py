"""The ClawBrain dialect: memories as Markdown files, ranked by a credit that feedback changes."""
