"""Networks trained by an optimizer on a memory."""
