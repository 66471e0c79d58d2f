"""Whether two mathematical answers are the same, through math-verify.

math-verify's own time limits are signals, which work in main threads only and
do not stop sympy's C loops. They are switched off: run untrusted answers
through `rlclip.rewards.pool`, whose deadline kills.
"""
import fractions
import functools
import logging
import re

import math_verify
import sympy

from rlclip import rewards

# It warns, once a process, that its time limits are off.
logging.getLogger('math_verify').setLevel(logging.ERROR)

_LATEX = math_verify.LatexExtractionConfig(boxed_match_priority=0)
_EXPRESSION = math_verify.ExprExtractionConfig()

_PLAIN = re.compile(
    r'[+-]?(?:[0-9]{1,3}(?:(?:,|\{,\}|,\\!)[0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?')
_STYLE = re.compile(r'\\(?:text|math)(?:bf|rm|it|sf)?\s*\{([^{}]*)\}')
_WORDS = re.compile(r'[^\W\d_][^\W\d_]+(?:[ -][^\W\d_]+)*')
_LETTER = re.compile(r'\(?([A-Ja-j])\)?[.:]?')
_CHOICES = (  # how a choice is named in a longer answer, clearest first
    re.compile(r'\banswer(?: is|:)[\s:*$(]*([A-J])(?![A-Za-z])'),
    re.compile(r'\(([A-J])\)'),
    re.compile(r'^([A-J])(?=[.:)]\s|$)'))
_HASHES = re.compile(r'(?<!#)####(?!#)[ \t]*(\S[^\n]*)')
_TAG = re.compile(r'<answer>(.*?)</answer>', re.DOTALL)
_BOX = re.compile(r'\\f?box(?:ed)?\s*\{')
_JOINT = re.compile(r'[\s$,;.]*(?:and|or|,|;|\\text\{ (?:and|or) \})[\s$]*')


def equivalent(gold: str, answer: str) -> bool | None:
  """Whether `answer` is the same mathematical object as `gold`.

  Plain numbers are compared exactly. All else is parsed and compared by
  math-verify: LaTeX with or without dollar signs, expressions, sets, tuples,
  intervals, equations. A choice is compared by its letter, words by their text.

  Args:
    gold: reference answer, as data sets write it.
    answer: a bare answer, or a response that it has to be found in.

  Returns:
    The verdict, or None where `gold` cannot be read.
  """
  gold, answer = _strip(gold), find_answer(answer)
  if not gold:
    return None
  exact = plain_number(gold), plain_number(answer)
  if None not in exact:
    return exact[0] == exact[1]
  if gold == answer:
    # Also where math-verify would have to evaluate it, such as 9^{9^{9}}.
    return True
  letter = _LETTER.fullmatch(_STYLE.sub(r'\1', gold))
  if letter and gold != gold.lower():
    return _choice(answer) == letter[1]
  expected = _parse_gold(gold)
  if not expected:
    words = _words(gold)
    return _words(answer) == words if words else None
  return any(
      math_verify.verify(
          list(expected), parsed, timeout_seconds=None,
          allow_set_relation_comp=True)
      for parsed in _readings(answer) if parsed)


def score(response: str, gold: str) -> float | None:
  """1 where the response's final answer is `gold`, else 0.

  Reasoning up to the last `</think>` gives no answer.

  Args:
    response: a whole completion.
    gold: reference answer.

  Returns:
    1.0, 0.0, or None where `gold` cannot be read.
  """
  verdict = equivalent(gold, response)
  return None if verdict is None else float(verdict)


@rewards.register('math')
def math(
    prompt: str, completion: str, tokens, *, gold: str, **fields
) -> float | None:
  """`score` of the completion against the field `gold`."""
  del prompt, tokens, fields
  return score(completion, gold)


def find_answer(response: str) -> str:
  """The part of a response that holds its final answer.

  In this order: the last box (or boxes, if joined by commas, 'and' or 'or'),
  the last `<answer>`, what stands behind the last `####`; else the whole text,
  where math-verify looks for 'the answer is' and the like.

  Args:
    response: a bare answer or a whole response.
  """
  text = response.rpartition('</think>')[2]
  boxes = _boxes(text)
  if boxes:
    contents, (begin, _, last) = [], boxes[-1]
    for start, end, content in reversed(boxes[:-1]):
      if not _JOINT.fullmatch(text[end:begin]):
        break
      contents.append(content)
      begin = start
    return _strip(', '.join([*reversed(contents), last]))
  tags = _TAG.findall(text)
  if tags:
    return _strip(tags[-1])
  hashes = _HASHES.findall(text)
  return _strip(hashes[-1] if hashes else text)


def _boxes(text: str) -> list[tuple[int, int, str]]:
  """Start, end and content of the outer boxes whose braces close."""
  boxes, position = [], 0
  while match := _BOX.search(text, position):
    depth, position = 1, match.end()
    while depth and position < len(text):
      depth += {'{': 1, '}': -1}.get(text[position], 0)
      position += 2 if text[position] == '\\' else 1  # \{ does not count
    if not depth:
      boxes.append((match.start(), position, text[match.end():position - 1]))
  return boxes


def plain_number(text: str) -> fractions.Fraction | None:
  """The exact value of digits with thousands commas, point and sign, or None.

  Fast: most answers of most sets are such, and need no parser.
  """
  text = re.sub(r'^(\\?\$)|(\\?\$)$', '', text).removesuffix('.').strip()
  if not re.search('[0-9]', text) or not _PLAIN.fullmatch(text):
    return None
  # Far beyond any answer; int() refuses more, and its time grows with them.
  if len(text) > 4000:
    return None
  return fractions.Fraction(re.sub(r'[^0-9.+-]', '', text))


def _strip(text: str) -> str:
  """Drops white space, paired dollar signs, and the closing full stop."""
  text = text.strip()
  for mark in ('$$', '$'):
    inner = text[len(mark):-len(mark)]
    if (len(text) > 2 * len(mark) and text.startswith(mark)
        and text.endswith(mark) and '$' not in inner):
      text = inner.strip()
  return text.removesuffix('.') if not text.endswith('..') else text


@functools.lru_cache(maxsize=4096)
def _parse_gold(gold: str) -> tuple:
  """Parses a reference: as LaTeX throughout, since sets leave dollars out."""
  text = gold if _BOX.search(gold) or '$' in gold else f'${gold}$'
  number = plain_number(gold)
  exact = [] if number is None else [
      sympy.Rational(number.numerator, number.denominator)]
  return tuple(_parse(text) or _parse(gold) or exact)


def _words(text: str) -> str:
  """Words without case and styling, or '' where `text` is not words."""
  plain = _STYLE.sub(r'\1', text).strip(' .\'"`*')
  return plain.casefold() if _WORDS.fullmatch(plain) else ''


def _choice(answer: str) -> str:
  """The one letter that an answer to a multiple choice names, or ''."""
  text = _STYLE.sub(r'\1', answer).strip()
  letter = _LETTER.fullmatch(text)
  if letter:
    return letter[1].upper()
  for pattern in _CHOICES:
    letters = pattern.findall(text)
    if letters:
      # Two different ones are no answer.
      return letters[0] if len(set(letters)) == 1 else ''
  return ''


def _readings(answer: str):
  """The ways to read an answer, likeliest first; a bare one is LaTeX."""
  yield _parse(answer)
  if '$' not in answer and len(answer) < 200 and '\n' not in answer:
    yield _parse(f'${answer}$')


def _parse(text: str) -> list:
  return math_verify.parse(
      text, extraction_config=[_LATEX, _EXPRESSION], parsing_timeout=None,
      fallback_mode='no_fallback')
