"""What users hand in, checked once."""
