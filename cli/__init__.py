"""The command lines: `tilewright` (main) and `tilewright-opt` (opt)."""
