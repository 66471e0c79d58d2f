"""Exact values of plain numbers, without any parser.

Most answers of most data sets are such. A number here is digits with a sign,
thousands separators, a point, an exponent, or a fraction of two of them; the
rest is left to `latex`.
"""
import fractions
import functools
import re
from typing import NamedTuple

# int() refuses longer ones, and its time grows with the square.
_MAX_DIGITS = 4000
_MAX_EXPONENT = 4000

_DECIMAL = r'(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)'
_PLAIN = re.compile(rf'([+-]*)\s*({_DECIMAL})')
_GROUPED = re.compile(r'(?<![0-9.,])[0-9]{1,3}(?:([, ])[0-9]{3})(?:\1[0-9]{3})*'
                      r'(?![0-9,]|\s[0-9])')
_POWER = re.compile(
    rf'([+-]*)\s*({_DECIMAL})\s*'
    r'(?:(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*(?:\{\s*|\()?([+-]?[0-9]+)'
    r'(?:\s*\}|\))?|[eE]([+-]?[0-9]+))')
_FRACTION = re.compile(
    rf'([+-]*)\s*(?:([0-9]+)(?:\s+|\s*(?=\\)))?'
    rf'(?:\\frac\s*\{{\s*([+-]?)\s*({_DECIMAL})\s*\}}\s*'
    rf'\{{\s*([+-]?)\s*({_DECIMAL})\s*\}}'
    rf'|({_DECIMAL})\s*(?:/|\\div)\s*({_DECIMAL}))')


class Number(NamedTuple):
  """A number and how it was written.

  Attributes:
    value: exact.
    decimals: digits behind the point; None where it is no decimal literal.
    digits: significant digits shown; 0 where it is no decimal literal.
  """
  value: fractions.Fraction
  decimals: int | None = None
  digits: int = 0


def ungroup(text: str) -> str:
  """Takes the separators out of thousands: '1,234 567' stays, '1,234' goes."""
  return _GROUPED.sub(lambda m: re.sub(r'[, ]', '', m[0]), text)


@functools.lru_cache(maxsize=8192)
def read(text: str) -> Number | None:
  """The exact number that `text` is, or None.

  Args:
    text: normalized, without separators of thousands.
  """
  text = text.strip()
  if len(text) > _MAX_DIGITS or not re.search('[0-9]', text):
    return None
  if match := _PLAIN.fullmatch(text):
    sign, digits = match.groups()
    return _decimal(sign, digits)
  if match := _POWER.fullmatch(text):
    sign, digits, power, exponent = match.groups()
    shift = int((power or exponent)[:9])
    if abs(shift) > _MAX_EXPONENT:
      return None
    number = _decimal(sign, digits)
    decimals = None if number.decimals is None else number.decimals - shift
    return Number(number.value * fractions.Fraction(10) ** shift,
                  decimals if shift < 0 else None, number.digits)
  if match := _FRACTION.fullmatch(text):
    return _fraction(match)
  return None


def _decimal(sign: str, digits: str) -> Number:
  value = fractions.Fraction(digits.rstrip('.') or '0')
  whole, point, rest = digits.partition('.')
  decimals = len(rest) if point and rest else None
  shown = len((whole + rest).lstrip('0')) if decimals else 0
  return Number(-value if sign.count('-') % 2 else value, decimals, shown)


def _fraction(match: re.Match) -> Number | None:
  sign, whole, top_sign, top, bottom_sign, bottom, left, right = match.groups()
  above = fractions.Fraction(top or left)
  below = fractions.Fraction(bottom or right)
  if not below or whole and (top_sign or bottom_sign or left and '.' in left):
    return None
  value = above / below
  if (top_sign == '-') != (bottom_sign == '-'):
    value = -value
  value += int(whole or 0)
  return Number(-value if sign.count('-') % 2 else value)


def rounds_to(value: fractions.Fraction, decimals: int) -> fractions.Fraction:
  """`value` to so many decimals, halves away from zero."""
  scaled = abs(value) * fractions.Fraction(10) ** decimals
  whole = (2 * scaled.numerator + scaled.denominator) // (
      2 * scaled.denominator)
  result = fractions.Fraction(whole) / fractions.Fraction(10) ** decimals
  return -result if value < 0 else result


def six_digits(shown: fractions.Fraction, exact: fractions.Fraction) -> bool:
  """Whether two numbers have the same first six digits, rounded or cut."""
  if not exact or not shown or (exact < 0) != (shown < 0):
    return False
  shown, exact = abs(shown), abs(exact)
  # Decimals that leave six significant digits of `exact`.
  decimals = 6 - magnitude(exact)
  cut = [x * fractions.Fraction(10) ** decimals // 1 for x in (shown, exact)]
  return cut[0] == cut[1] or (
      rounds_to(shown, decimals) == rounds_to(exact, decimals))


def magnitude(value: fractions.Fraction) -> int:
  """Digits before the point: 1 for 2, 0 for 0.2, -1 for 0.02."""
  size = len(str(value.numerator)) - len(str(value.denominator))
  # 10^(size-1) < value < 10^(size+1).
  return size + 1 if value >= fractions.Fraction(10) ** size else size


def simple_decimal(number: Number) -> bool:
  """Whether a decimal is rather exact than rounded: 2.5, 0.75, 0.3."""
  return number.digits < 2 or number.value.denominator < 10
