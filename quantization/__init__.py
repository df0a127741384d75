"""Post-training quantisation: the mathematics of calibration and recovery.

observers.py   statistics of activations, gathered in a jitted pass; limits, scales and zero points from them
rounding.py    quantise, dequantise, fake quantisation with a straight-through gradient; scales of weights
weights.py     integer weights of a product or a convolution: round to nearest, GPTQ, AWQ
balancing.py   SmoothQuant, cross-layer equalisation, bias correction
learned.py     learned rounding (AdaRound), learned scales (LSQ)

A stored number q stands for (q - zero) * scale. Scales and zero points have the rank of their tensor: along a
dimension of n elements they have 1 (one for all), n (one for each) or n / g elements (one for each group of g);
`blocks` says so as pairs of a dimension and g, as `dialects/quantized.py` does.
"""
