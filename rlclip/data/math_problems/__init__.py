"""The tfds builder of maths problem sets, alone in its package."""
