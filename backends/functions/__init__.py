"""What scalar functions, reductions, products, sorts, scatters and host calls compute, for all that run programs."""
