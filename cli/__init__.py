"""The command lines: `tilewright` (main, commands) and `tilewright-opt` (opt, optimizer)."""
