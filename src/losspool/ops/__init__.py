"""The autograd functions behind ``losspool.functional``. Nothing here checks its arguments."""
