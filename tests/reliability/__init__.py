"""What must hold when the machine underneath fails; the figures that the README publishes."""
