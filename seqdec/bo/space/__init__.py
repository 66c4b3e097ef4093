"""What may be searched: dimensions, conditions and constraints, and their encoding in the unit cube."""
