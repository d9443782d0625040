"""What is installed and what works here, for bug reports. The loss alone is enough to import it."""

from losspool.segmentation.doctor.checks import examine

__all__ = ["examine"]
