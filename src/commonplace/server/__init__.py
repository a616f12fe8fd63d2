"""How requests come in: who may call, and what they are answered over HTTP."""
