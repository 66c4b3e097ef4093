"""Networks trained by an optimizer on a memory, without a belief or with one over their last layer."""
