"""What training draws: the class index, and augmented crops."""
