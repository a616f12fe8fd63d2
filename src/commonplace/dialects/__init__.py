"""One package for each dialect, a memory API of agents. A dialect never imports another one."""
