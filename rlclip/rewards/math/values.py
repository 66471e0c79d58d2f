"""Values of formulas: exact where possible, else to many digits, in bounds.

A tree of `latex` is evaluated by this module's own walk, so that nothing in it
can take long: a power or factorial is computed only below a bound on its size,
and no symbolic rule is applied.
"""
import fractions
import functools
import random
import threading
from typing import Any, Mapping

import mpmath
import sympy

from rlclip.rewards.math import functions, powers

Unknown, NotReal, Value = powers.Unknown, powers.NotReal, powers.Value
# Decimal digits that are computed, at least and at most, and how many of them
# may be lost.
_DIGITS, _MOST_DIGITS, _MARGIN = 90, 2000, functions.MARGIN
_HANDLERS = {**powers.HANDLERS, **functions.HANDLERS}

_local = threading.local()


def _context(digits: int) -> Any:
  """A context of its own for each thread and precision."""
  contexts = _local.__dict__.setdefault('contexts', {})
  if digits not in contexts:
    if len(contexts) > 50:
      contexts.clear()
    contexts[digits] = mpmath.mp.clone()
    contexts[digits].dps = digits
  return contexts[digits]


class Evaluator:
  """Evaluates trees at one point.

  Args:
    point: value of each variable by its name.
    digits: decimal digits of values that are not rational.
  """

  def __init__(self, point: Mapping[str, fractions.Fraction],
               digits: int = _DIGITS):
    self.point = point
    self.digits = digits
    self.ctx = _context(digits)

  def __call__(self, node: Any) -> Value:
    if isinstance(node, sympy.Rational):
      return fractions.Fraction(int(node.p), int(node.q))
    if isinstance(node, sympy.Symbol):
      return self._symbol(node.name)
    if isinstance(node, sympy.Float):
      return fractions.Fraction(str(node))
    handler = _HANDLERS.get(type(node).__name__)
    if handler is not None:
      return handler(self, node)
    if isinstance(node, sympy.core.function.AppliedUndef):
      return self._unknown(node)
    raise Unknown(type(node).__name__)

  def _symbol(self, name: str) -> Value:
    if name in self.point:
      return self.point[name]
    if name == 'i':
      return self.ctx.mpc(0, 1)
    if name == 'e':
      return +self.ctx.e
    raise Unknown(name)

  def _unknown(self, node: Any) -> fractions.Fraction:
    """A fixed arbitrary value for f(2): equal for equal arguments."""
    arguments = [self(arg) for arg in node.args]
    shown = [str(a) if isinstance(a, fractions.Fraction)
             else self.ctx.nstr(a, 30) for a in arguments]
    return _arbitrary(f'{node.func.__name__}({shown})')

  def at(self, name: str, value: int) -> 'Evaluator':
    """The same with one more variable."""
    point = {**self.point, name: fractions.Fraction(value)}
    return Evaluator(point, self.digits)

  def inexact(self, value: Value) -> Any:
    """The value in the context's precision."""
    if isinstance(value, fractions.Fraction):
      return self.ctx.mpf(value.numerator) / value.denominator
    return value


def _arbitrary(name: str) -> fractions.Fraction:
  draw = random.Random(name)
  return fractions.Fraction(draw.randrange(-900, 900), draw.randrange(80, 120))


def digits_for(*trees: Any) -> int:
  """Digits that tell such values apart: more where small terms are added."""
  extra = 0
  for tree in trees:
    for power in tree.atoms(sympy.Pow):
      if isinstance(power.exp, sympy.Integer) and isinstance(
          power.base, sympy.Rational):
        extra += abs(int(power.exp)) * len(str(power.base))
    for number in tree.atoms(sympy.Rational):
      extra += (int(number.p).bit_length() + int(number.q).bit_length()) // 3
  return _DIGITS + min(extra, _MOST_DIGITS)


def same(left: Any, right: Any, point: Mapping[str, fractions.Fraction]
         ) -> bool:
  """Whether two trees have the same value at a point.

  Exact where both values are rational; else they have to agree in all digits
  but the last thirty of at least ninety. A difference that is zero only as far
  as computed is computed again to twice the digits.

  Raises:
    Unknown: one of the two has no value there.
    NotReal: the same, since it is not real.
  """
  digits = digits_for(left, right)
  imaginary = any(
      tree.has(sympy.I) or any(s.name == 'i' for s in tree.free_symbols)
      for tree in (left, right))
  for factor in (1, 2):
    ev = Evaluator(point, digits * factor)
    a, b = ev(left), ev(right)
    if isinstance(a, fractions.Fraction) and isinstance(b, fractions.Fraction):
      return a == b
    a, b = ev.inexact(a), ev.inexact(b)
    if point and not imaginary and any(map(powers.is_complex, (a, b))):
      raise NotReal('over the reals')
    scale = max(abs(a), abs(b))
    tolerance = ev.ctx.mpf(10) ** (_MARGIN - digits * factor)
    if not abs(a - b) <= scale * tolerance:
      # Both may be zero, up to what was lost in cancelling.
      if scale >= tolerance:
        return False
    elif scale >= tolerance or not scale:
      return True
    # Both tiny: twice the digits tell whether they are zero.
    if factor == 2:
      return scale < tolerance or abs(a - b) <= scale * tolerance
  return False


@functools.lru_cache(maxsize=4096)
def constant(tree: Any) -> Value | None:
  """The value of a tree without variables, or None."""
  try:
    return Evaluator({})(tree)
  except (Unknown, RecursionError, ArithmeticError, ValueError, TypeError):
    return None


def variables(tree: Any) -> frozenset[str]:
  """Names of the variables, without those that are constants or bound."""
  return frozenset(
      s.name for s in tree.free_symbols if s.name not in ('i', 'e'))


def agree(left: Any, right: Any, point: Mapping[str, fractions.Fraction]
          ) -> bool | None:
  """`same`, and None where one of the two has no real value at the point.

  Values that are both complex are compared as such.
  """
  try:
    return same(left, right, point)
  except (Unknown, RecursionError, ArithmeticError, ValueError, TypeError):
    return None


def rational(tree: Any) -> fractions.Fraction | None:
  """The value of a real constant, exact or as exact as computed."""
  value = constant(tree)
  if value is None or isinstance(value, fractions.Fraction):
    return value
  if powers.is_complex(value) or not mpmath.isfinite(value):
    return None
  sign, mantissa, exponent, _ = value._mpf_
  if abs(exponent) > 10 ** 5:
    return None
  result = fractions.Fraction(int(mantissa)) * fractions.Fraction(2) ** exponent
  return -result if sign else result


def proportional(left: Any, right: Any, names: list[str], *, positive: bool
                 ) -> bool:
  """Whether two trees are constant multiples of each other, nowhere zero both.

  Args:
    left: difference of the sides of one relation.
    right: of the other.
    names: all their variables.
    positive: whether the multiple must be positive, as for inequalities.
  """
  draw = random.Random(1)
  factor = None
  agreed = 0
  for i in range(10):
    point = {
        name: fractions.Fraction(draw.randrange(-900 if i % 2 else 1, 900),
                                 draw.randrange(7, 97)) for name in names}
    try:
      ev = Evaluator(point, 2 * _DIGITS)
      a, b = ev(left), ev(right)
      if powers.is_complex(a) or powers.is_complex(b) or not a or not b:
        continue
      ratio = ev.inexact(a) / ev.inexact(b)
    except (Unknown, ArithmeticError, ValueError, TypeError, RecursionError):
      continue
    if factor is None:
      factor = ratio
    elif abs(ratio - factor) > abs(factor) * ev.ctx.mpf(10) ** (
        _MARGIN - _DIGITS):
      return False
    agreed += 1
  if not agreed or factor is None:
    return False
  return factor > 0 or not positive
