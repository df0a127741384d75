"""quantized."""
