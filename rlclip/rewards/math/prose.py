"""From the text of an answer to what it says: bare formulas, or sentences."""
import fractions
import re

from rlclip.rewards.math import extract, normalize, words

_PLAIN = re.compile(
    r'[+-]?(?:[0-9]{1,3}(?:(?:,|\{,\}|,\\!)[0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?')
_WORD = re.compile(r'(?<![\\a-zA-Z])[^\W\d_]{2,}')
_NOT_PROSE = frozenset(
    'and or either both is are pi sqrt sin cos tan cot sec csc log ln exp'
    .split())
_LEAD = re.compile(
    r'^\s*(?:(?:therefore|hence|thus|so|we get|we have|it is|it\'s|is|about'
    r'|equals?|the|an?|approximately|solutions? (?:is|are)|:|,)\b\s*)+',
    re.IGNORECASE)
_SCRIPTS = re.compile(
    r'[\u0370-\u03a8\u0400-\u1fff\u3040-\u9fff\uac00-\ud7af]')
_ACCENTS = re.compile('[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f]')
_FOREIGN_WORDS = frozenset(
    'est sont donc avec pour une le les des du la el los las por para es son '
    'der die das ist sind und somit also antwort quindi sono gli il per che '
    'een het dus zijn jest wynosi daher portanto logo resposta respuesta '
    'risposta r\u00e9ponse'.split())
_ENGLISH = re.compile(r'\b(?:the|of|and|is|are|we|that|with)\b', re.IGNORECASE)
_EURO = re.compile(
    r'(?<![0-9,.])([0-9]+),([0-9]{2})(?=\s*(?:\u20ac|EUR|euros?))')
_LONE_DOLLAR = re.compile(r'(?<![0-9,.])([0-9]+),([0-9]{2})(?=\s+\$)')
_DECIMAL_COMMA = re.compile(
    r'(?<![0-9,.(\[\]{])([0-9]+),([0-9]{1,2}|[0-9]{4,})(?![0-9,])')


_ENDING = re.compile(
    r'.*\b(?:is|are|was|were|be|a|an|the)\s+((?!not\b)[^.!?\n]{1,100})'
    r'[.!?]*\s*$',
    re.DOTALL)
# '1,2' is rather a list, '1,22' rather a price.
_BARE_COMMA = re.compile(r'-?(?:[0-9]+,(?:[0-9]{2}|[0-9]{4,})|0,[0-9]{2,})')


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


def decimal_comma(text: str) -> bool:
  """Whether a text may be one number with a decimal comma: '1,22', '0,111'."""
  return bool(_BARE_COMMA.fullmatch(text))


def is_foreign(text: str) -> bool:
  """Whether a text is in a language that writes a decimal comma."""
  text = text[-4000:]
  if _SCRIPTS.search(text):
    return True
  words_ = [word.lower() for word in re.findall(r'[^\W\d_]+', text)]
  hits = sum(word in _FOREIGN_WORDS for word in words_)
  accents = bool(_ACCENTS.search(text))
  english = len(_ENGLISH.findall(text))
  return hits + 2 * accents >= 2 and english < hits + accents


def readings(gold: str, answer: str, foreign: bool):
  """The one answer that a text gives, normalized; first as it stands.

  A sentence is also read for what it closes with. A text that is not a
  sentence has the one reading.

  Args:
    gold: reference.
    answer: what was found.
    foreign: whether it stands in a text with decimal commas; `is_foreign`.
  """
  answer = normalize.digits(answer)
  if foreign:
    answer = _DECIMAL_COMMA.sub(r'\1.\2', answer)
  answer = _EURO.sub(r'\1.\2', answer)
  if answer.count('$') % 2:
    answer = _LONE_DOLLAR.sub(r'\1.\2', answer)
  whole = normalize.latex(answer.strip())
  said = is_sentence(answer)
  if _in_words(gold):
    yield whole
    if ending := _ENDING.search(answer[-400:]):
      yield normalize.latex(ending[1])
    return
  if not said or words.gold_choice(gold):
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
  if len(text) > 3000 or re.search(r'[^\W\d_].*[0-9].*\.\.\s*$', text):
    return True
  outside = re.sub(
      r'\\(?:text|mathrm|mbox|textbf|textit|operatorname|begin|end)\s*'
      r'\{[^{}]*\}', ' ', text)
  maths = list(extract.MATHS.finditer(outside))
  for match in maths:
    outside = outside.replace(match[0], ' ')
  found = [w for w in _WORD.findall(_LEAD.sub('', outside))
           if w.lower() not in _NOT_PROSE]
  if re.search('[0-9]', text) and (
      re.search(r'[\u3040-\u9fff\uac00-\ud7af]', outside)
      or found and is_foreign(outside)):
    return True
  if maths:
    # Words behind a formula are its unit.
    ahead = text[:text.find(maths[0][0])]
    return len(found) > 2 or bool(_WORD.search(ahead))
  return len(found) > 2 or len(found) > 1 and bool(
      re.search(r'[a-z]\.\s|[.!?]$', outside.strip()))
