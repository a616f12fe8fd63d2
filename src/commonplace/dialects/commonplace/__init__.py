"""Commonplace's own dialect: ten tools, small enough for any model's context."""
