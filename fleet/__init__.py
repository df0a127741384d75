"""Releases of model files for a fleet of devices: in stages, with what devices report, and back by itself."""
