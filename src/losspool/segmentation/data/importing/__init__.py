"""Turn a download into a dataset: layouts, class lists, COCO, splits."""
