"""Releases of model files for a fleet of devices: in stages, with what devices report, and back by itself."""

SIMULATED_FAULTS = ("none", "latency", "values", "crash", "forged", "offline")
"""What may be wrong with the second release: nothing; its calls take 1.5 times as long; its values are wrong; it brings
the device down; it is signed by somebody else; it takes the device off the network."""
