"""The engine: the data model of a memory, and the operations on memories."""
