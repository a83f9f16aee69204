"""What measures speed and robustness: python -m benchmarks.NAME."""
