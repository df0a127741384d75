"""Quantization from data: calibration, recovery, differentiable twins of quantized programs, a search for modes."""
