r"""Matrices that are left to be computed: sums, products, multiples."""
import functools
import re

import sympy

from rlclip.rewards.math import latex, structure

_LONGEST, _MOST = 800, 6


@functools.lru_cache(maxsize=256)
def computed(text: str) -> structure.Matrix | None:
  r"""The matrix that a formula with matrices comes to, or None.

  Args:
    text: of `normalize.latex`, such as `2\begin{pmatrix}1\\2\end{pmatrix}`.
  """
  if text.count(r'\begin') > _MOST or len(text) > _LONGEST:
    return None
  if '^' in re.sub(r'\\begin.*?\\end\{[a-z]*\}', '', text, flags=re.DOTALL):
    return None
  value = latex.matrix(text)
  if value is None:
    return None
  rows = tuple(
      tuple(structure.Leaf(sympy.latex(value[i, j]))
            for j in range(value.shape[1])) for i in range(value.shape[0]))
  return structure.Matrix(text, rows)
