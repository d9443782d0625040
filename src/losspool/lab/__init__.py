"""Experiments on top of the system. Needs ``losspool[lab]``.

Each folder uses only the ones before it: ``library`` holds the grids that come with the package, ``comparison`` reads
runs and computes statistics, ``tables`` and ``figures`` show them, ``report`` puts them on one page, ``grids`` runs
experiments and produces all of these.
"""
