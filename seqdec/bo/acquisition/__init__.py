"""What a question is chosen for: acquisitions of one or several outputs, under constraints and failures."""
