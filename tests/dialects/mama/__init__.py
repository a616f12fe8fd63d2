"""The MAMA dialect."""
