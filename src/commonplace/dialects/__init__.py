"""One folder for each contract of an agent memory. A dialect never imports another."""
