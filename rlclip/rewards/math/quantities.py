"""Compares two formulas or numbers, with their units, percents and degrees."""
import fractions
import functools
import random
import re
from typing import Any, NamedTuple

from rlclip.rewards.math import latex, normalize, numbers, units, values, words

_F = fractions.Fraction
_PERCENT = re.compile(
    r'\s*(?:%|\\text\s*\{\s*(?:%|percent|percentage|pct)\s*\}'
    r'|(?<=[\s0-9}])(?:percent|percentage|pct))\s*$')
_DEGREE = re.compile(
    r'\s*(?:\^\s*\\circ|\\text\s*\{\s*degrees?\s*\}|(?<=[\s0-9}])degrees?)\s*$')
_RADIAN = re.compile(
    r'\s*(?:\\text\s*\{\s*rad(?:ians?)?\s*\}|(?<=[\s0-9}])rad(?:ians?)?)\s*$')
_ORDINAL = re.compile(
    r'(?<=[0-9])\s*(?:\^\s*\{?\s*)?(?:\\text\s*\{\s*(?:st|nd|rd|th)\s*\}'
    r'|(?:st|nd|rd|th)(?![a-zA-Z]))\s*\}?')
_BASE = re.compile(
    r'\(?\s*([0-9A-Za-z]+)\s*\)?\s*_\s*\{?\s*(?:\\text\s*\{\s*(?:base\s*)?)?'
    r'([0-9]{1,2}|[a-z]+)\s*\}?\s*\}?')
_FUNCTION = re.compile(r'\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)(?![a-z])')
_POINTS = 12
# Longer ones have no unit.
_LONGEST = 400


class Quantity(NamedTuple):
  """A leaf without what stands behind its value.

  Attributes:
    text: the value.
    label: unit, currency or thing counted; ''.
    mark: '%', 'deg' or ''.
  """
  text: str
  label: str = ''
  mark: str = ''

  @property
  def number(self) -> numbers.Number | None:
    return numbers.read(numbers.ungroup(self.text))


@functools.lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
  """Takes a percent sign, a degree sign or a unit off."""
  text = _ORDINAL.sub('', text.strip())
  text = re.sub(r'(?<!\.)\.$', '', text).strip()
  text = words.number(text) or text
  if numbers.read(text) or len(text) > _LONGEST:
    return Quantity(text)
  for pattern, mark in (
      (_PERCENT, '%'), (_DEGREE, 'deg'), (_RADIAN, 'rad')):
    match = pattern.search(text)
    if match and not _FUNCTION.search(text):
      return Quantity(text[:match.start()], mark=mark)
  value, label = units.split(text)
  value = value.rstrip('\\ ')
  if label and _DEGREE.search(f' {label}'):
    return Quantity(value, mark='deg')
  spelled = words.number(value)
  return Quantity(spelled or value, label)


def base(text: str) -> tuple[str, str] | None:
  """Digits and base of a number with an index: ('1011', '2'), or None."""
  match = _BASE.fullmatch(text.strip())
  if not match or not match[1][0].isdigit() and not match[1].isupper():
    return None
  index = words.number(match[2]) if match[2].isalpha() else match[2]
  if not index or len(match[1]) == 1 and match[1].isalpha():
    return None
  return match[1].lstrip('0').upper(), index


def same(gold: str, answer: str) -> bool:
  """Whether two leaves have the same value.

  Args:
    gold: reference; what is behind its decimals is unknown.
    answer: to compare with it.
  """
  if _same_text(gold, answer):
    return True
  bases = base(gold), base(answer)
  if any(bases):
    return bases[0] == bases[1]
  left, right = quantity(gold), quantity(answer)
  factor = units.convert(right.label, left.label)
  if factor is None:
    return False
  return any(
      _same_value(left, right, mark, factor)
      for mark in _scales(left.mark, right.mark))


def _same_text(gold: str, answer: str) -> bool:
  return normalize.key(gold) == normalize.key(answer)


def _scales(gold: str, answer: str) -> tuple[Any, ...]:
  """What an answer may be multiplied with to be in the reference's terms."""
  return {
      ('%', ''): (1, 100), ('', '%'): (1, _F(1, 100)),
      ('deg', ''): (1, r'\frac{180}{\pi}'),
      ('', 'deg'): (1, r'\frac{\pi}{180}'),
      ('deg', 'rad'): (r'\frac{180}{\pi}',),
      ('rad', 'deg'): (r'\frac{\pi}{180}',),
      ('deg', '%'): (), ('%', 'deg'): ()}.get((gold, answer), (1,))


def _same_value(
    gold: Quantity, answer: Quantity, scale: Any, factor: _F) -> bool:
  exact = gold.number, answer.number
  if None not in exact and not isinstance(scale, str):
    return same_numbers(
        exact[0], exact[1], _F(scale) * factor, share=gold.mark == '%')
  text = answer.text
  if scale != 1:
    scale = scale if isinstance(scale, str) else (
        f'\\frac{{{scale.numerator}}}{{{scale.denominator}}}')
    text = f'{scale}\\cdot ({text})'
  if factor != 1:
    text = (f'\\frac{{{factor.numerator}}}{{{factor.denominator}}}'
            f'\\cdot ({text})')
  trees = latex.parse(gold.text), latex.parse(text)
  if None in trees:
    return False
  return same_trees(
      *trees, exact[0], exact[1] if scale == 1 == factor else None,
      share=gold.mark == '%')


def same_numbers(
    gold: numbers.Number, answer: numbers.Number, scale: _F,
    share: bool = False) -> bool:
  """Exactly, or by the rules for decimals; see the package."""
  value = answer.value * scale
  if value == gold.value:
    return True
  if gold.decimals is not None:
    if numbers.simple_decimal(gold) and not (share and gold.digits > 1):
      return False
    shown = answer.decimals
    if shown is not None and scale == 1 and shown <= gold.decimals:
      return False
    return numbers.rounds_to(value, gold.decimals) == gold.value
  if answer.decimals is None or answer.digits < 6:
    return False
  # An exact value that these digits could show must be shown.
  target = gold.value / scale
  if (target * _F(10) ** answer.decimals).denominator == 1:
    return False
  return numbers.six_digits(answer.value, target)


def same_trees(
    left: Any, right: Any, gold: numbers.Number | None = None,
    answer: numbers.Number | None = None, share: bool = False) -> bool:
  """Whether two trees are equal for all values of their variables.

  Constants are compared to many digits. Expressions are compared at random
  points of all signs: equal at each point where both are real, and at one at
  least.
  """
  if left == right:
    return True
  names = sorted(values.variables(left) | values.variables(right))
  if not names:
    return _same_constants(left, right, gold, answer, share)
  if len(names) > 12:
    return False
  draw = random.Random(0)
  agreed = 0
  for i in range(_POINTS):
    point = {name: _draw(draw, i) for name in names}
    verdict = values.agree(left, right, point)
    if verdict is False:
      return False
    agreed += verdict is not None
  return agreed > 1


def _draw(draw: random.Random, i: int) -> _F:
  """Positive, mixed and whole numbers in turn; far ones among them."""
  kind = i % 4
  if kind == 0:
    return _F(draw.randrange(1, 2000), draw.randrange(101, 997))
  if kind == 1:
    return _F(draw.randrange(-4000, 4000), draw.randrange(101, 997))
  if kind == 2:
    return _F(draw.randrange(1, 12))
  return _F(draw.randrange(1, 90), 97)


def _same_constants(
    left: Any, right: Any, gold: numbers.Number | None,
    answer: numbers.Number | None, share: bool) -> bool:
  verdict = values.agree(left, right, {})
  if verdict is not False:
    return verdict is True
  if gold is None and answer is None:
    return False
  rational = values.rational(right if gold else left)
  if rational is None:
    return False
  if gold is not None:
    return same_numbers(gold, numbers.Number(rational), _F(1), share)
  return same_numbers(numbers.Number(rational), answer, _F(1))
