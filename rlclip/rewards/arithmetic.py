"""Exact match of the last number in a completion."""
import decimal
import re

from rlclip import rewards

# A minus is a sign only where nothing that could be subtracted from stands
# before it: '5-3' ends in 3, '= -3' in -3.
_NUMBER = re.compile(
    r'(?:(?<![\w)\]])(?P<sign>[-\u2212])\s?\$?)?'
    r'(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?'
    r'|(?<![0-9])\.[0-9]+)')


def last_number(text: str, *, marker: str = '') -> decimal.Decimal | None:
  """Reads the number that `text` ends on.

  Thousands commas are dropped: '1,331' is 1331, while '1,33' ends in 33.

  Args:
    text: any text.
    marker: where given, the number is the first one behind the last marker,
      as in '#### 42 apples and 3 pears'. Without the marker there is no answer.

  Returns:
    The number, exactly, or None where there is none.
  """
  if marker:
    _, found, tail = text.rpartition(marker)
    match = _NUMBER.search(tail) if found else None
  else:
    match = None
    for match in _NUMBER.finditer(text):
      pass
  if match is None:
    return None
  value = decimal.Decimal(match['digits'].replace(',', ''))
  return -value if match['sign'] else value


@rewards.register('arithmetic')
def arithmetic(
    prompt: str, completion: str, tokens, *, gold: str, marker: str = '',
    **fields) -> float | None:
  """1 where the last number equals `gold`, else 0.

  Args:
    prompt: not read.
    completion: text to score.
    tokens: not read.
    gold: the right number; None is returned where it holds no number.
    marker: see `last_number`; a field of the example, such as '#'.
    **fields: not read.
  """
  del prompt, tokens, fields
  expected = last_number(str(gold))
  if expected is None:
    return None
  return float(last_number(completion, marker=marker) == expected)
