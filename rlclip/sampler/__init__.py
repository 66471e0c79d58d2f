"""Host-side samplers: they turn requests into completions with log-probs."""
