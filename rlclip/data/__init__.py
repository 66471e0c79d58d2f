"""Tasks, tokenizers, order, batches, the bank of rollouts; no jax."""
