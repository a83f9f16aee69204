"""What measures speed and robustness: python -m scripts.bench.NAME."""
