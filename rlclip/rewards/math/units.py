"""Units, currencies and labels behind a number."""
import fractions
import functools
import re
from typing import NamedTuple

_F = fractions.Fraction


class Unit(NamedTuple):
  """A unit as a product of powers of base units.

  Attributes:
    factor: how many base units it is.
    dimensions: (base unit, power), sorted.
  """
  factor: fractions.Fraction
  dimensions: tuple[tuple[str, int], ...]


_PREFIXES = {'k': 3, 'c': -2, 'm': -3, 'd': -1, 'M': 6, '\u03bc': -6, 'n': -9}
_PREFIX_NAMES = {'kilo': 3, 'centi': -2, 'milli': -3, 'deci': -1, 'mega': 6,
                 'micro': -6, 'nano': -9}
_BASES = {  # symbol: names, base unit, factor, whether prefixes go with it
    'm': ('meter metre', 'm', _F(1), True),
    'g': ('gram gramme', 'g', _F(1), True),
    's': ('second sec', 's', _F(1), True),
    'L': ('liter litre l', 'm^3', _F(1, 1000), True),
    'J': ('joule', 'J', _F(1), True), 'W': ('watt', 'W', _F(1), True),
    'N': ('newton', 'N', _F(1), True), 'V': ('volt', 'V', _F(1), True),
    'A': ('ampere amp', 'A', _F(1), True), 'Hz': ('hertz', 'Hz', _F(1), True),
    'Pa': ('pascal', 'Pa', _F(1), True), 'K': ('kelvin', 'K', _F(1), False),
    'min': ('minute', 's', _F(60), False),
    'h': ('hour hr', 's', _F(3600), False),
    'day': ('day', 's', _F(86400), False),
    'week': ('week', 's', _F(604800), False),
    'month': ('month', 'month', _F(1), False),
    'yr': ('year', 'month', _F(12), False),
    'in': ('inch inche', 'm', _F(254, 10000), False),
    'ft': ('foot feet', 'm', _F(3048, 10000), False),
    'yd': ('yard', 'm', _F(9144, 10000), False),
    'mi': ('mile', 'm', _F(1609344, 1000), False),
    'mph': ('', 'm/s', _F(1609344, 3600000), False),
    'kmph': ('kmh kph', 'm/s', _F(1000, 3600), False),
    'lb': ('pound-mass', 'g', _F(45359237, 100000), False),
    'oz': ('ounce', 'g', _F(45359237, 1600000), False),
    't': ('tonne', 'g', _F(1000000), False),
    'cc': ('', 'm^3', _F(1, 1000000), False),
    'ha': ('hectare', 'm^2', _F(10000), False),
    '\\$': ('dollar usd buck', 'dollar', _F(1), False),
    'cent': ('cent', 'dollar', _F(1, 100), False),
    '\u20ac': ('euro eur', 'euro', _F(1), False),
    '\u00a3': ('gbp', 'sterling', _F(1), False),
    '\u5143': ('yuan rmb', 'yuan', _F(1), False),
    'Rs': ('rupee', 'rupee', _F(1), False),
    '\u00a5': ('yen', 'yen', _F(1), False)}
_COMPOUND = {
    'm^3': (('m', 3),), 'm^2': (('m', 2),), 'm/s': (('m', 1), ('s', -1))}

_GROUP = r'\\text\s*\{(?P<text>[^{}]*)\}'
_POWER = r'(?:\s*\^\s*(?:\{\s*(?P<braced>-?[0-9])\s*\}|(?P<power>[0-9])))?'
# What a number ends on: digits, brackets, letters behind a formula.
_LABEL = re.compile(
    rf'^(?P<value>.*[0-9a-zA-Z)}}\]|!].*?|[0-9a-zA-Z)])\s*{_GROUP}{_POWER}'
    r'(?P<more>(?:\s*[/\u00b7.]?\s*\\text\s*\{[^{}]*\}'
    r'(?:\^\{?-?[0-9]\}?)?)*)\.?$', re.DOTALL)
_WORDS = re.compile(
    r'^(?P<value>(?:[^a-zA-Z]|\\[a-zA-Z]+)*[0-9)}\]])\s*'
    r'(?P<unit>(?:[a-zA-Z]{2,}|[\u20ac\u00a3\u5143\u00a5]|(?<=\s)[mgshLlNJWVK]'
    r'(?=\s|$|/|\^))(?:[\s/\u00b7-]+[a-zA-Z]+|\^\{?-?[0-9]\}?|[0-9](?=$|\s))*)'
    r'\.?$')
_BEFORE = re.compile(
    r'^(-?)\s*(\\\$|US\\\$|[\u20ac\u00a3\u00a5])\s*(?=[0-9.(\\-])')
_BEHIND = re.compile(
    r'(?<=[0-9.)}])\s*(\\\$|[\u20ac\u00a3\u5143\u00a5])\s*\.*$')


def split(text: str) -> tuple[str, str]:
  r"""Takes what is written behind (or, of money, before) a number.

  Args:
    text: of `normalize.latex`, such as `12\text{ cm}^2`, `\$5`, `40 apples`.

  Returns:
    The number and its label; the label is '' where there is none.
  """
  if money := _BEFORE.match(text):
    rest = text[money.end():]
    behind = split(rest)
    return money[1] + behind[0], money[2]
  if money := _BEHIND.search(text):
    return text[:money.start()], money[1]
  if match := _LABEL.match(text):
    power = match['braced'] or match['power']
    label = match['text'] + (f'^{power}' if power else '')
    more = re.sub(r'\\text\s*\{([^{}]*)\}', r' \1 ', match['more'] or '')
    value = match['value'].rstrip('\\ ')
    inner, deeper = split(value)
    return inner, f'{deeper} {label} {more}'.strip()
  match = _WORDS.match(text)
  # '2ab' and '2 ab' are products, '2km' and '2 boxes' are not.
  if match and (parse(match['unit']) or text[match.start('unit') - 1] == ' '
                and len(match['unit']) > 3):
    return match['value'].strip(), match['unit']
  return text, ''


def convert(label: str, other: str) -> fractions.Fraction | None:
  """How many of `other` one of `label` is.

  Returns:
    1 where one of the two is missing or no known unit; None where they measure
    different things.
  """
  left, right = parse(label), parse(other)
  if left is None or right is None:
    return _F(1)
  if left.dimensions != right.dimensions:
    return None
  return left.factor / right.factor


@functools.lru_cache(maxsize=1024)
def parse(label: str) -> Unit | None:
  """The unit that a label names: 'm/s^2', 'square feet', 'km per hour'."""
  words = re.findall(
      r'\\\$|[^\W\d_]+(?:-mass)?|[/]|\^\s*\{?\s*-?[0-9]|[0-9]'
      r'|[\u20ac\u00a3\u00a5]',
      label)
  total, dimensions, sign, pending = _F(1), {}, 1, 1
  last: tuple[Unit, int] | None = None
  for word in words:
    lower = word.casefold()
    if lower in ('/', 'per'):
      sign = -1
    elif lower in ('square', 'sq', 'squared', 'cubic', 'cu', 'cubed'):
      power = 2 if lower.startswith('sq') else 3
      if lower.endswith('ed') and last:
        total *= _apply(dimensions, last[0], last[1] * (power - 1))
      else:
        pending = power
    elif word[0] == '^' or word.isdigit():
      power = int(word.strip('^{ '))
      if last:
        total *= _apply(dimensions, last[0], last[1] * (power - 1))
        last = None
    else:
      unit = _single(word)
      if unit is None:
        return None
      last = unit, sign
      total *= _apply(dimensions, unit, sign * pending)
      pending = 1
  kept = tuple(sorted((k, v) for k, v in dimensions.items() if v))
  return Unit(total, kept) if kept else None


def _apply(dimensions: dict, unit: Unit, power: int) -> fractions.Fraction:
  for base, exponent in unit.dimensions:
    dimensions[base] = dimensions.get(base, 0) + exponent * power
  return unit.factor ** power


@functools.lru_cache(maxsize=1024)
def _single(word: str) -> Unit | None:
  found = _TABLE.get(word)
  if found is None and len(word) > 2:
    lower = word.casefold()
    found = _TABLE.get(lower) or _TABLE.get(lower.removesuffix('s'))
  return found


def _table() -> dict[str, Unit]:
  table = {}
  for symbol, (names, base, factor, prefixed) in _BASES.items():
    dimensions = _COMPOUND.get(base, ((base, 1),))
    table[symbol] = Unit(factor, dimensions)
    for name in names.split():
      table[name] = table[symbol]
    if not prefixed:
      continue
    for prefix, exponent in _PREFIXES.items():
      table.setdefault(
          prefix + symbol, Unit(factor * _F(10) ** exponent, dimensions))
    for prefix, exponent in _PREFIX_NAMES.items():
      for name in names.split():
        if len(name) > 3:
          table[prefix + name] = Unit(factor * _F(10) ** exponent, dimensions)
  return table


_TABLE = _table()
