"""Agent meets environment: compiled on the devices, or step by step on the host."""
