"""The tfds builder of problem sets, alone in its package."""
