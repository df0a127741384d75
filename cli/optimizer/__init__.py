"""The driver behind `tilewright-opt`: its passes, its messages and what it measures."""
