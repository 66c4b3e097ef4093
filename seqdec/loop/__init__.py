"""The loop in which an agent meets an environment: compiled on the devices, or step by step on the host."""
