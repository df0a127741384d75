"""Arguments: their names, types and trees, which are static or donated, and where dimensions are open."""
