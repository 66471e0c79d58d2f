"""Compiling what runs once: as fast as can be, however slow it then runs."""
from typing import Callable

import jax


def quick(function: Callable) -> Callable:
  """jax.jit without the optimizations, whose price is higher than their gain.

  Op by op, every new shape of a toy would compile each operation again.
  """
  return jax.jit(
      function, compiler_options={'xla_backend_optimization_level': 0})
