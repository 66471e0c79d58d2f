"""A docstring taken apart: what it is, formulas, limits, numbers, source.

The registries' docstrings are the one place where a rule is described. Their
form (a summary, formulas and prose, then sections) is read here, so that pages
and the command line say what the code says.
"""
import inspect
import re
from typing import Any, Mapping, NamedTuple

_SECTION = re.compile(
    r'^(Attributes|Args|Returns|Raises|Limits|Source):[ \n]', re.MULTILINE)
_RELATION = re.compile(r' (?:=|<=|>=|<=>|->|~) ')
# "beyond w = 1" is said in prose.
_ASIDE = re.compile(r'(?<=[a-z]{2} )[A-Za-z] (?:=|<|>|<=|>=) [-+\d.]+')
_WORD = re.compile(r'\b[A-Za-z]{2,}\b')
# A line that ends with a full stop ends a sentence, and so does a stop before
# a capital; neither does an abbreviation.
_END = re.compile(
    r'(?<!\bal)(?<!e\.g)(?<!i\.e)(?<!\bvs)[.!?](?:\n|\s+(?=[A-Z]))')
_LIMIT = re.compile(
    r'\b(?:only|cannot|refuse[sd]?|biased|ignores?|surrogate|unverified|'
    r'unknown|guess(?:ed)?|inexact|not exact|approximat\w*|no closed form)\b',
    re.IGNORECASE)
# Word in a source: the mark it stands for. The first that is found counts.
_MARKS = (
    ('guess', 'a guess, with no text behind it'),
    ('unverified', 'unverified'),
    ('second-hand', 'second-hand'),
    ('derived', 'derived here and checked, in part or whole'),
    ('textbook', 'common knowledge'),
)


class Docstring(NamedTuple):
  """The parts of one docstring; each may be empty.

  Attributes:
    summary: the first paragraph, in one line.
    prose: sentences of the body without a formula.
    formulas: lines of formulas, as they stand.
    limits: what is refused, or where the rule is not exact.
    numbers: description by name, of attributes or arguments.
    source: where it is from.
    trust: how well that is known, as far as the source says.
  """
  summary: str
  prose: tuple[str, ...]
  formulas: tuple[str, ...]
  limits: tuple[str, ...]
  numbers: Mapping[str, str]
  source: str
  trust: str


def read(thing: Any) -> Docstring:
  """Takes the docstring of a class or function apart.

  Args:
    thing: a class, a function, or the text itself.

  Returns:
    The Docstring. A sentence is a formula where a relation such as = or <=
    stands in it with few words before it; else a limit where a word such as
    "only" says so; else prose.
  """
  text = thing if isinstance(thing, str) else inspect.getdoc(thing) or ''
  text = re.sub(r'(?<=\S)[ ]+Source: ', '\nSource: ', inspect.cleandoc(text))
  head, *rest = _SECTION.split(text)
  sections = {title: inspect.cleandoc(body)
              for title, body in zip(rest[::2], rest[1::2], strict=True)}
  summary, _, body = head.strip().partition('\n\n')
  summary, prose, formulas, limits = one_line(summary), [], [], []
  if is_formula(summary):
    formulas.append(summary)
  for sentence in sentences(body):
    if is_formula(sentence):
      # Two spaces set formulas apart that share a line.
      formulas.extend(part.strip().rstrip('.;') for line in sentence.split('\n')
                      for part in line.strip().split(';  '))
    elif _LIMIT.search(sentence):
      limits.append(one_line(sentence))
    else:
      prose.append(one_line(sentence))
  limits.extend(sentences(one_line(sections.get('Limits', ''))))
  for condition in _items(sections.get('Raises', '')).values():
    limits.append(f'Refused {condition}')
  source = one_line(sections.get('Source', ''))
  return Docstring(
      summary, tuple(prose), tuple(formulas), tuple(limits),
      {**_items(sections.get('Attributes', '')),
       **_items(sections.get('Args', ''))}, source, trust(source))


def sentences(text: str) -> list[str]:
  """Splits at full stops; lines within a sentence are kept."""
  found, start = [], 0
  for match in _END.finditer(text):
    found.append(text[start:match.start() + 1])
    start = match.end()
  return [part.strip() for part in (*found, text[start:]) if part.strip()]


def is_formula(sentence: str) -> bool:
  """Whether a relation stands near the beginning, which is no word."""
  sentence = _ASIDE.sub('', one_line(sentence))
  match = _RELATION.search(sentence)
  if not match or re.match(r'[A-Z][a-z]+ ', sentence):
    return False
  # What stands in parentheses is an argument.
  before = re.sub(r'\(.*?\)', '', sentence[:match.start()])
  return len(_WORD.findall(before)) < 4


def trust(source: str) -> str:
  """The mark that a source gives itself; '' where it gives none."""
  return next((mark for word, mark in _MARKS if word in source.lower()), '')


def one_line(text: str) -> str:
  """Without line breaks."""
  return ' '.join(text.split())


def _items(section: str) -> dict[str, str]:
  """'name: text' entries, whose further lines are indented."""
  items, name = {}, None
  for line in section.split('\n'):
    match = re.match(r'(\**\w+): (.*)', line)
    if match:
      name = match[1]
      items[name] = match[2]
    elif name is not None:
      items[name] += f' {line.strip()}'
  return items
