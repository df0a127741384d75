"""Programs with open dimensions: their sources, sizes and versions, and what data decides of sizes."""
