"""The kinds of datasets, by name: CamVid, Cityscapes, VOC, a folder of one's own, and generated streets."""
