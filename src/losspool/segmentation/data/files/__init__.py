"""Image and label files: reading them, datasets stored as them, groups of them, and their faults."""
