"""Random JAX programs against JAX: see docs/fuzzing.md."""
