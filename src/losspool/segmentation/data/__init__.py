"""Datasets behind one small protocol, the class index, and augmentation."""
