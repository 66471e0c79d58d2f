"""From the text of an answer to what it says: bare formulas, or sentences."""
import fractions
import re

from rlclip.rewards.math import extract, normalize, numbers, words

_PLAIN = re.compile(
    r'[+-]?(?:[0-9]{1,3}(?:(?:,|\{,\}|,\\!)[0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?')
_WORD = re.compile(r'(?<![\\a-zA-Z])[^\W\d_]{2,}')
_NOT_PROSE = frozenset(
    'and or either both is are pi sqrt sin cos tan cot sec csc log ln exp'.split())
_LEAD = re.compile(
    r'^\s*(?:(?:therefore|hence|thus|so|we get|we have|it is|it\'s|is|about'
    r'|equals?|the|an?|approximately|solutions? (?:is|are)|:|,)\b\s*)+',
    re.IGNORECASE)
_FOREIGN = re.compile(
    r'[\u00c0-\u024f\u0370-\u1fff\u3040-\u9fff\uac00-\ud7af]'
    r'|\b(?i:est|sont|donc|soucis|le|les|des|el|los|las|es|der|die|das|ist|und'
    r'|somit|quindi|sono|gli|por|para|portanto|een|het|dus|jest|daher)\b')
_DECIMAL_COMMA = re.compile(r'(?<![0-9,.(\[\]{])([0-9]+),([0-9]{1,2}|[0-9]{4,})(?![0-9,])')


_BARE_COMMA = re.compile(r'-?[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})')


def gold_text(gold: str) -> str:
  """A reference without its box, if it has one."""
  if '\\boxed' in gold or '\\fbox' in gold or '####' in gold:
    return extract.find(gold)[0]
  return gold


def plain_number(text: str) -> fractions.Fraction | None:
  """The exact value of digits with thousands commas, point and sign, or None.

  Fast: most answers of most sets are such, and need no parser.
  """
  text = text.strip()
  text = re.sub(r'^(?:\\?\$)+|(?:\\?\$)+$', '', text)
  text = text.removesuffix('.').strip()
  # Far beyond any answer; int() refuses more, and its time grows with them.
  if len(text) > 4000 or not re.search('[0-9]', text):
    return None
  if not _PLAIN.fullmatch(text):
    return None
  return fractions.Fraction(re.sub(r'[^0-9.+-]', '', text))


def readings(gold: str, answer: str, marked: bool):
  """The one answer that a text gives, normalized; first as it stands.

  A sentence is also read for what it closes with. A text that is not a
  sentence has the one reading.

  Args:
    gold: reference.
    answer: what was found.
    marked: whether it was marked as the answer.
  """
  answer = normalize.digits(answer)
  if _FOREIGN.search(answer):
    answer = _DECIMAL_COMMA.sub(r'\1.\2', answer)
  whole = normalize.latex(answer.strip())
  said = is_sentence(answer)
  if not said or words.gold_choice(gold) or _in_words(gold):
    yield whole
    if '.' in gold and _BARE_COMMA.fullmatch(answer.strip(' $')):
      yield answer.strip(' $').replace(',', '.')
    return
  yield normalize.latex(extract.closing_statement(answer))


def _in_words(gold: str) -> bool:
  """Whether a reference is words: two letters together outside of LaTeX."""
  return not re.search('[0-9]', gold) and bool(
      re.search(r'\\text|(?<![\\a-zA-Z])[a-zA-Z]{3,}', gold)) and (
          not re.search(r'[=<>+^]|\\(?:le|ge|in|cup|pi|frac)(?![a-z])', gold))


def is_sentence(text: str) -> bool:
  """Whether a text is prose with an answer in it, not a bare answer."""
  if len(text) > 3000:
    return True
  outside = re.sub(
      r'\\(?:text|mathrm|mbox|textbf|textit|operatorname|begin|end)\s*'
      r'\{[^{}]*\}', ' ', text)
  maths = list(extract._MATHS.finditer(outside))
  for match in maths:
    outside = outside.replace(match[0], ' ')
  found = [w for w in _WORD.findall(_LEAD.sub('', outside))
           if w.lower() not in _NOT_PROSE]
  if re.search('[0-9]', text) and (
      re.search(r'[\u3040-\u9fff\uac00-\ud7af]', outside)
      or found and _FOREIGN.search(outside)):
    return True
  if maths:
    # Words behind a formula are its unit.
    ahead = text[:text.find(maths[0][0])]
    return len(found) > 2 or bool(_WORD.search(ahead))
  return len(found) > 2 or len(found) > 1 and bool(
      re.search(r'[a-z]\.\s|[.!?]$', outside.strip()))
