"""Sums, products and powers of exact and of many-digit numbers, in bounds.

Over the reals: `(-8)^(1/3)` is -2. Each rule takes the evaluator, which has the
values of the parts, and a node of a tree.
"""
import fractions
import math
from typing import Any

import mpmath

# Bits of the largest exact number; 2006! has 19 thousand.
_MAX_BITS = 200_000
# Natural logarithm of the largest number that is not exact.
_MAX_LOG = 10 ** 6


class Unknown(Exception):
  """The value is out of bounds, undefined, or of an unknown function."""


class NotReal(Unknown):
  """The value is not a real number."""


Value = fractions.Fraction | mpmath.mpf | mpmath.mpc


def _add(ev: Any, node: Any) -> Value:
  values = [ev(arg) for arg in node.args]
  if all(isinstance(v, fractions.Fraction) for v in values):
    return sum(values, fractions.Fraction(0))
  total = ev.ctx.mpf(0)
  for value in values:
    total += ev.inexact(value)
  return total


def _mul(ev: Any, node: Any) -> Value:
  exact, rest = fractions.Fraction(1), None
  for value in map(ev, node.args):
    if isinstance(value, fractions.Fraction):
      exact *= value
      check_size(exact)
    else:
      rest = value if rest is None else rest * value
  if rest is None or not exact:
    return exact
  return ev.inexact(exact) * rest


def check_size(value: fractions.Fraction) -> None:
  if max(value.numerator.bit_length(),
         value.denominator.bit_length()) > _MAX_BITS:
    raise Unknown('too large')


def _pow(ev: Any, node: Any) -> Value:
  base, exponent = map(ev, node.args)
  if isinstance(exponent, fractions.Fraction):
    if exponent.denominator == 1:
      return _integer_power(ev, base, exponent.numerator)
    if not is_complex(base):
      return _real_power(ev, base, exponent)
  base, exponent = ev.inexact(base), ev.inexact(exponent)
  if not base:
    raise Unknown('power of zero')
  if _size(ev, base, exponent) > _MAX_LOG:
    raise Unknown('too large')
  return plain(ev.ctx.power(base, exponent))


def _size(ev: Any, base: Any, exponent: Any) -> float:
  return abs(exponent) * abs(ev.ctx.log(abs(base)))


def _integer_power(ev: Any, base: Value, n: int) -> Value:
  if n < 0 and not base:
    raise Unknown('division by zero')
  if isinstance(base, fractions.Fraction):
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and base and bits * abs(n) > _MAX_BITS:
      raise Unknown('too large')
    if abs(base) in (0, 1):
      n = n % 2 if base == -1 else min(abs(n), 1)
    return base ** n
  if base and _size(ev, base, n) > _MAX_LOG:
    raise Unknown('too large')
  return base ** n


def _real_power(
    ev: Any, base: Value, exponent: fractions.Fraction) -> Value:
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
  if _size(ev, x, power) > _MAX_LOG:
    raise Unknown('too large')
  if x > 0:
    return ev.ctx.power(x, power)
  if exponent.denominator % 2:
    value = ev.ctx.power(-x, power)
    return -value if exponent.numerator % 2 else value
  return plain(ev.ctx.power(ev.ctx.mpc(x), power))


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
          else _newton_root(value, n))
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


def is_complex(value: Value) -> bool:
  return not isinstance(value, fractions.Fraction) and hasattr(
      value, '_mpc_')


def plain(value: Any) -> Any:
  """A real number where the imaginary part is zero."""
  return value.real if is_complex(value) and not value.imag else value


HANDLERS = {'Add': _add, 'Mul': _mul, 'Pow': _pow}
