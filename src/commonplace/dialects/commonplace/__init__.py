"""The dialect of our own: ten tools, small enough for any model's context."""
