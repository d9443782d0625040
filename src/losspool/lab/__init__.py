"""Experiments on top of the system. Needs ``losspool[lab]``.

Each room uses only the ones before it: ``comparison`` reads runs and computes statistics, ``tables`` and ``figures``
show them, ``report`` puts them on one page, ``grids`` runs experiments and produces all of these.
"""
