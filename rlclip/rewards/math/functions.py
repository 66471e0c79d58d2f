"""Functions of numbers, in bounds; see `powers`."""
import fractions
import math
from typing import Any, Callable

from rlclip.rewards.math import powers

Unknown, NotReal, Value = powers.Unknown, powers.NotReal, powers.Value
Handler = Callable[[Any, Any], Value]
_MAX_TERMS = 300
# Decimal digits that may be lost on the way.
MARGIN = 30
# Arguments of functions beyond this lose all digits.
_LARGEST = 10 ** 40


def _function(name: str) -> Handler:
  def evaluate(ev: Any, node: Any) -> Value:
    arguments = [ev.inexact(ev(arg)) for arg in node.args]
    if any(abs(a) > _LARGEST for a in arguments):
      raise Unknown('too large')
    if name == 'exp' and abs(arguments[0]) > 10 ** 6:
      raise Unknown('too large')
    try:
      return powers.plain(getattr(ev.ctx, name)(*arguments))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
      raise Unknown(name) from error
  return evaluate


def _log(ev: Any, node: Any) -> Value:
  values = [ev.inexact(ev(arg)) for arg in node.args]
  if not all(values):
    raise Unknown('log of zero')
  logs = [powers.plain(ev.ctx.log(value)) for value in values]
  if len(logs) == 1:
    return logs[0]
  if not logs[1]:
    raise Unknown('log to base one')
  return logs[0] / logs[1]


def _factorial(ev: Any, node: Any) -> Value:
  value = ev(node.args[0])
  if isinstance(value, fractions.Fraction) and value.denominator == 1:
    if not 0 <= value <= 20_000:
      raise Unknown('factorial')
    return fractions.Fraction(math.factorial(int(value)))
  x = ev.inexact(value)
  if abs(x) > 10 ** 5:
    raise Unknown('too large')
  return ev.ctx.gamma(x + 1)


def _binomial(ev: Any, node: Any) -> Value:
  n, k = map(ev, node.args)
  whole = all(isinstance(x, fractions.Fraction) and x.denominator == 1
              for x in (n, k))
  if whole and 0 <= n <= 20_000 and k >= 0:
    return fractions.Fraction(math.comb(int(n), int(k)))
  n, k = ev.inexact(n), ev.inexact(k)
  if max(abs(n), abs(k)) > 10 ** 5:
    raise Unknown('too large')
  return ev.ctx.binomial(n, k)


def _whole(rounding: str) -> Handler:
  def evaluate(ev: Any, node: Any) -> Value:
    value = ev(node.args[0])
    if isinstance(value, fractions.Fraction):
      return fractions.Fraction(getattr(math, rounding)(value))
    if powers.is_complex(value) or abs(value) > _LARGEST:
      raise Unknown(rounding)
    nearest = ev.ctx.nint(value)
    if abs(value - nearest) < ev.ctx.mpf(10) ** (MARGIN - ev.digits):
      return fractions.Fraction(int(nearest))
    name = {'floor': 'floor', 'ceil': 'ceil'}[rounding]
    return fractions.Fraction(int(getattr(ev.ctx, name)(value)))
  return evaluate


def _absolute(ev: Any, node: Any) -> Value:
  return abs(ev(node.args[0]))


def _extreme(choose: Callable) -> Handler:
  def evaluate(ev: Any, node: Any) -> Value:
    values = [ev(arg) for arg in node.args]
    if any(map(powers.is_complex, values)):
      raise NotReal('order')
    return choose(values, key=ev.inexact)
  return evaluate


def _divisor(combine: Callable) -> Handler:
  def evaluate(ev: Any, node: Any) -> Value:
    values = [ev(arg) for arg in node.args]
    if not all(isinstance(v, fractions.Fraction) and v.denominator == 1
               for v in values):
      raise Unknown('divisor')
    return fractions.Fraction(combine(*(v.numerator for v in values)))
  return evaluate


def _mod(ev: Any, node: Any) -> Value:
  left, right = map(ev, node.args)
  exact = isinstance(left, fractions.Fraction) and isinstance(
      right, fractions.Fraction)
  if not exact or not right:
    raise Unknown('remainder')
  return left % right


def _repeated(combine: Callable) -> Handler:
  """A sum or product over a short range of integers."""
  def evaluate(ev: Any, node: Any) -> Value:
    body, (variable, start, stop) = node.args[0], node.args[1]
    first, last = ev(start), ev(stop)
    whole = all(isinstance(x, fractions.Fraction) and x.denominator == 1
                for x in (first, last))
    if not whole or last - first > _MAX_TERMS or len(node.args) != 2:
      raise Unknown('range')
    result = None
    for n in range(int(first), int(last) + 1):
      term = ev.at(variable.name, n)(body)
      result = term if result is None else combine(ev, result, term)
    if result is None:
      raise Unknown('empty range')
    return result
  return evaluate


def _joined(ev: Any, a: Value, b: Value, operation: Callable) -> Value:
  if isinstance(a, fractions.Fraction) and isinstance(b, fractions.Fraction):
    result = operation(a, b)
    powers.check_size(result)
    return result
  return operation(ev.inexact(a), ev.inexact(b))


def _constant(name: str) -> Handler:
  return lambda ev, node: +getattr(ev.ctx, name)


def _wrapped(ev: Any, node: Any) -> Value:
  return ev(node.args[0])


_NAMES = {  # sympy's name: mpmath's
    'sin': 'sin', 'cos': 'cos', 'tan': 'tan', 'cot': 'cot', 'sec': 'sec',
    'csc': 'csc', 'asin': 'asin', 'acos': 'acos', 'atan': 'atan',
    'acot': 'acot', 'asec': 'asec', 'acsc': 'acsc', 'sinh': 'sinh',
    'cosh': 'cosh', 'tanh': 'tanh', 'asinh': 'asinh', 'acosh': 'acosh',
    'atanh': 'atanh', 'exp': 'exp', 'gamma': 'gamma', 'zeta': 'zeta',
    're': 're', 'im': 'im', 'conjugate': 'conj', 'arg': 'arg'}
HANDLERS = {
    **{theirs: _function(ours) for theirs, ours in _NAMES.items()},
    'log': _log, 'Abs': _absolute,
    'factorial': _factorial, 'binomial': _binomial,
    'floor': _whole('floor'), 'ceiling': _whole('ceil'),
    'Max': _extreme(max), 'Min': _extreme(min), 'Mod': _mod,
    'UnevaluatedExpr': _wrapped, 'gcd': _divisor(math.gcd),
    'lcm': _divisor(math.lcm), 'Pi': _constant('pi'),
    'Exp1': _constant('e'), 'EulerGamma': _constant('euler'),
    'ImaginaryUnit': lambda ev, node: ev.ctx.mpc(0, 1),
    'Sum': _repeated(lambda ev, a, b: _joined(ev, a, b, lambda x, y: x + y)),
    'Product': _repeated(
        lambda ev, a, b: _joined(ev, a, b, lambda x, y: x * y)),
}
