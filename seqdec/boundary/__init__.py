"""What users hand in, checked once: numbers, seeds, keys and containers, spaces, tables."""
