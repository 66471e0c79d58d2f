"""Values of formulas: exact where possible, else to many digits, in bounds.

A tree of `latex` is evaluated by this module's own walk, so that nothing in it
can take long: a power or factorial is computed only below a bound on its size,
and no symbolic rule is applied. Over the reals: `(-8)^(1/3)` is -2.
"""
import fractions
import functools
import math
import random
import threading
from typing import Any, Callable, Mapping

import mpmath
import sympy

# Bits of the largest exact number; 2006! has 19 thousand.
_MAX_BITS = 200_000
_MAX_TERMS = 300
# Decimal digits that are computed, at least and at most, and how many of them
# may be lost.
_DIGITS, _MOST_DIGITS, _MARGIN = 90, 2000, 30
# Arguments of functions beyond this lose all digits.
_LARGEST = 10 ** 40


class Unknown(Exception):
  """The value is out of bounds, undefined, or of an unknown function."""


class NotReal(Unknown):
  """The value is not a real number."""


Value = fractions.Fraction | mpmath.mpf | mpmath.mpc


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

  def inexact(self, value: Value) -> Any:
    """The value in the context's precision."""
    if isinstance(value, fractions.Fraction):
      return self.ctx.mpf(value.numerator) / value.denominator
    return value


def _arbitrary(name: str) -> fractions.Fraction:
  draw = random.Random(name)
  return fractions.Fraction(draw.randrange(-900, 900), draw.randrange(80, 120))


def _add(ev: Evaluator, node: Any) -> Value:
  values = [ev(arg) for arg in node.args]
  if all(isinstance(v, fractions.Fraction) for v in values):
    return sum(values, fractions.Fraction(0))
  total = ev.ctx.mpf(0)
  for value in values:
    total += ev.inexact(value)
  return total


def _mul(ev: Evaluator, node: Any) -> Value:
  exact, rest = fractions.Fraction(1), None
  for value in map(ev, node.args):
    if isinstance(value, fractions.Fraction):
      exact *= value
      _check_size(exact)
    else:
      rest = value if rest is None else rest * value
  if rest is None or not exact:
    return exact
  return ev.inexact(exact) * rest


def _check_size(value: fractions.Fraction) -> None:
  if max(value.numerator.bit_length(),
         value.denominator.bit_length()) > _MAX_BITS:
    raise Unknown('too large')


def _pow(ev: Evaluator, node: Any) -> Value:
  base, exponent = map(ev, node.args)
  if isinstance(exponent, fractions.Fraction):
    if exponent.denominator == 1:
      return _integer_power(ev, base, exponent.numerator)
    if not _is_complex(base):
      return _real_power(ev, base, exponent)
  base, exponent = ev.inexact(base), ev.inexact(exponent)
  if not base:
    raise Unknown('power of zero')
  if _size(ev, base, exponent) > 10 ** 6:
    raise Unknown('too large')
  return _plain(ev.ctx.power(base, exponent))


def _size(ev: Evaluator, base: Any, exponent: Any) -> float:
  return abs(exponent) * abs(ev.ctx.log(abs(base)))


def _integer_power(ev: Evaluator, base: Value, n: int) -> Value:
  if n < 0 and not base:
    raise Unknown('division by zero')
  if isinstance(base, fractions.Fraction):
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and base and bits * abs(n) > _MAX_BITS:
      raise Unknown('too large')
    if abs(base) in (0, 1):
      n = n % 2 if base == -1 else min(abs(n), 1)
    return base ** n
  if base and _size(ev, base, n) > 10 ** 6:
    raise Unknown('too large')
  return base ** n


def _real_power(
    ev: Evaluator, base: Value, exponent: fractions.Fraction) -> Value:
  """Odd roots of negative numbers are negative; even ones are not real."""
  if isinstance(base, fractions.Fraction):
    root = _exact_root(base, exponent.denominator)
    if root is not None:
      return _integer_power(ev, root, exponent.numerator)
  x = ev.inexact(base)
  power = ev.inexact(exponent)
  if not x:
    if exponent > 0:
      return fractions.Fraction(0)
    raise Unknown('division by zero')
  if _size(ev, x, power) > 10 ** 6:
    raise Unknown('too large')
  if x > 0:
    return ev.ctx.power(x, power)
  if exponent.denominator % 2:
    value = ev.ctx.power(-x, power)
    return -value if exponent.numerator % 2 else value
  return _plain(ev.ctx.power(ev.ctx.mpc(x), power))


def _exact_root(value: fractions.Fraction, n: int) -> fractions.Fraction | None:
  if n > 64:
    return None
  if value < 0:
    if n % 2 == 0:
      return None
    root = _exact_root(-value, n)
    return None if root is None else -root
  parts = [_integer_root(x, n) for x in (value.numerator, value.denominator)]
  return None if None in parts else fractions.Fraction(*parts)


def _integer_root(value: int, n: int) -> int | None:
  if value.bit_length() > 4096:
    return None
  root = (math.isqrt(value) if n == 2
          else int(mpmath.libmp.iroot(value, n)[0])
          if hasattr(mpmath.libmp, 'iroot') else _newton_root(value, n))
  return root if root ** n == value else None


def _newton_root(value: int, n: int) -> int:
  if value < 2:
    return value
  x = 1 << -(-value.bit_length() // n)
  while True:
    y = ((n - 1) * x + value // x ** (n - 1)) // n
    if y >= x:
      return x
    x = y


def _is_complex(value: Value) -> bool:
  return not isinstance(value, fractions.Fraction) and hasattr(
      value, '_mpc_')


def _plain(value: Any) -> Any:
  """A real number where the imaginary part is zero."""
  return value.real if _is_complex(value) and not value.imag else value


def _function(name: str) -> Callable[[Evaluator, Any], Value]:
  def evaluate(ev: Evaluator, node: Any) -> Value:
    arguments = [ev.inexact(ev(arg)) for arg in node.args]
    if any(abs(a) > _LARGEST for a in arguments):
      raise Unknown('too large')
    if name == 'exp' and abs(arguments[0]) > 10 ** 6:
      raise Unknown('too large')
    try:
      return _plain(getattr(ev.ctx, name)(*arguments))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
      raise Unknown(name) from error
  return evaluate


def _log(ev: Evaluator, node: Any) -> Value:
  values = [ev.inexact(ev(arg)) for arg in node.args]
  if not all(values):
    raise Unknown('log of zero')
  logs = [_plain(ev.ctx.log(value)) for value in values]
  if len(logs) == 1:
    return logs[0]
  if not logs[1]:
    raise Unknown('log to base one')
  return logs[0] / logs[1]


def _factorial(ev: Evaluator, node: Any) -> Value:
  value = ev(node.args[0])
  if isinstance(value, fractions.Fraction) and value.denominator == 1:
    if not 0 <= value <= 20_000:
      raise Unknown('factorial')
    return fractions.Fraction(math.factorial(int(value)))
  x = ev.inexact(value)
  if abs(x) > 10 ** 5:
    raise Unknown('too large')
  return ev.ctx.gamma(x + 1)


def _binomial(ev: Evaluator, node: Any) -> Value:
  n, k = map(ev, node.args)
  whole = all(isinstance(x, fractions.Fraction) and x.denominator == 1
              for x in (n, k))
  if whole and 0 <= n <= 20_000 and k >= 0:
    return fractions.Fraction(math.comb(int(n), int(k)))
  n, k = ev.inexact(n), ev.inexact(k)
  if max(abs(n), abs(k)) > 10 ** 5:
    raise Unknown('too large')
  return ev.ctx.binomial(n, k)


def _whole(rounding: str) -> Callable[[Evaluator, Any], Value]:
  def evaluate(ev: Evaluator, node: Any) -> Value:
    value = ev(node.args[0])
    if isinstance(value, fractions.Fraction):
      return fractions.Fraction(getattr(math, rounding)(value))
    if _is_complex(value) or abs(value) > _LARGEST:
      raise Unknown(rounding)
    nearest = ev.ctx.nint(value)
    if abs(value - nearest) < ev.ctx.mpf(10) ** (_MARGIN - ev.digits):
      return fractions.Fraction(int(nearest))
    name = {'floor': 'floor', 'ceil': 'ceil'}[rounding]
    return fractions.Fraction(int(getattr(ev.ctx, name)(value)))
  return evaluate


def _absolute(ev: Evaluator, node: Any) -> Value:
  return abs(ev(node.args[0]))


def _extreme(choose: Callable) -> Callable[[Evaluator, Any], Value]:
  def evaluate(ev: Evaluator, node: Any) -> Value:
    values = [ev(arg) for arg in node.args]
    if any(map(_is_complex, values)):
      raise NotReal('order')
    return choose(values, key=ev.inexact)
  return evaluate


def _mod(ev: Evaluator, node: Any) -> Value:
  left, right = map(ev, node.args)
  exact = isinstance(left, fractions.Fraction) and isinstance(
      right, fractions.Fraction)
  if not exact or not right:
    raise Unknown('remainder')
  return left % right


def _repeated(combine: Callable) -> Callable[[Evaluator, Any], Value]:
  """A sum or product over a short range of integers."""
  def evaluate(ev: Evaluator, node: Any) -> Value:
    body, (variable, start, stop) = node.args[0], node.args[1]
    first, last = ev(start), ev(stop)
    whole = all(isinstance(x, fractions.Fraction) and x.denominator == 1
                for x in (first, last))
    if not whole or last - first > _MAX_TERMS or len(node.args) != 2:
      raise Unknown('range')
    result = None
    for n in range(int(first), int(last) + 1):
      inner = Evaluator(
          {**ev.point, variable.name: fractions.Fraction(n)}, ev.digits)
      term = inner(body)
      result = term if result is None else combine(ev, result, term)
    if result is None:
      raise Unknown('empty range')
    return result
  return evaluate


def _joined(ev: Evaluator, a: Value, b: Value, operation: Callable) -> Value:
  if isinstance(a, fractions.Fraction) and isinstance(b, fractions.Fraction):
    result = operation(a, b)
    _check_size(result)
    return result
  return operation(ev.inexact(a), ev.inexact(b))


def _constant(name: str) -> Callable[[Evaluator, Any], Value]:
  return lambda ev, node: +getattr(ev.ctx, name)


def _wrapped(ev: Evaluator, node: Any) -> Value:
  return ev(node.args[0])


_NAMES = {  # sympy's name: mpmath's
    'sin': 'sin', 'cos': 'cos', 'tan': 'tan', 'cot': 'cot', 'sec': 'sec',
    'csc': 'csc', 'asin': 'asin', 'acos': 'acos', 'atan': 'atan',
    'acot': 'acot', 'asec': 'asec', 'acsc': 'acsc', 'sinh': 'sinh',
    'cosh': 'cosh', 'tanh': 'tanh', 'asinh': 'asinh', 'acosh': 'acosh',
    'atanh': 'atanh', 'exp': 'exp', 'gamma': 'gamma', 'zeta': 'zeta',
    're': 're', 'im': 'im', 'conjugate': 'conj', 'arg': 'arg'}
_HANDLERS = {
    **{theirs: _function(ours) for theirs, ours in _NAMES.items()},
    'Add': _add, 'Mul': _mul, 'Pow': _pow, 'log': _log, 'Abs': _absolute,
    'factorial': _factorial, 'binomial': _binomial,
    'floor': _whole('floor'), 'ceiling': _whole('ceil'),
    'Max': _extreme(max), 'Min': _extreme(min), 'Mod': _mod,
    'UnevaluatedExpr': _wrapped, 'Pi': _constant('pi'),
    'Exp1': _constant('e'), 'EulerGamma': _constant('euler'),
    'ImaginaryUnit': lambda ev, node: ev.ctx.mpc(0, 1),
    'Sum': _repeated(lambda ev, a, b: _joined(ev, a, b, lambda x, y: x + y)),
    'Product': _repeated(
        lambda ev, a, b: _joined(ev, a, b, lambda x, y: x * y)),
}


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
  for factor in (1, 2):
    ev = Evaluator(point, digits * factor)
    a, b = ev(left), ev(right)
    if isinstance(a, fractions.Fraction) and isinstance(b, fractions.Fraction):
      return a == b
    a, b = ev.inexact(a), ev.inexact(b)
    if point and _is_complex(a) != _is_complex(b):
      raise NotReal('one of two')
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
  if _is_complex(value) or not mpmath.isfinite(value):
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
      if _is_complex(a) or _is_complex(b) or not a or not b:
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
