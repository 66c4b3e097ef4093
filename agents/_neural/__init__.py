"""Networks trained by an optimizer on a memory, optionally with a belief over the last layer."""
