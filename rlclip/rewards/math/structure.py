r"""Splits an answer into lists, tuples, intervals, relations and formulas.

Only by separators outside of all brackets; the formulas themselves are left to
`latex`. `x=1 \text{ or } x=2` becomes a list of two relations.
"""
import functools
import re
from typing import NamedTuple
from typing import Union as Either

from rlclip.rewards.math import numbers


class Leaf(NamedTuple):
  """A formula, a number with its unit, or words."""
  text: str


class Series(NamedTuple):
  """Elements side by side.

  Attributes:
    text: as written.
    items: the elements.
    joint: ',', ';', 'and', 'or', or '{' for a set in braces.
  """
  text: str
  items: tuple
  joint: str


class Tuple(NamedTuple):
  """Elements in round or square brackets: a tuple, vector or interval."""
  text: str
  items: tuple
  left: str
  right: str


class Relation(NamedTuple):
  """A chain: sides with signs between them, such as 0 < x <= 1."""
  text: str
  sides: tuple[str, ...]
  signs: tuple[str, ...]


class Operation(NamedTuple):
  """Sets joined by cup, cap or setminus."""
  text: str
  items: tuple
  sign: str


class Matrix(NamedTuple):
  """Rows of entries."""
  text: str
  rows: tuple


class Ratio(NamedTuple):
  """a:b, a:b:c."""
  text: str
  items: tuple


class Builder(NamedTuple):
  """The numbers of which something holds."""
  text: str
  condition: 'Node'


Node = Either[
    Leaf, Series, Tuple, Relation, Operation, Matrix, Ratio, Builder]

_OPEN = {'(': ')', '[': ']', '{': '}', r'\{': r'\}', r'\langle': r'\rangle',
         r'\lfloor': r'\rfloor', r'\lceil': r'\rceil', r'\begin': r'\end'}
_CLOSE = set(_OPEN.values())
_TOKEN = re.compile(r'\\[{}]|\\[a-zA-Z]+|\\.|[a-zA-Z]+|.', re.DOTALL)
_SIGNS = {'=': '=', '<': '<', '>': '>', r'\le': r'\le', r'\ge': r'\ge',
          r'\ne': r'\ne', r'\approx': r'\approx', r'\in': r'\in',
          r'\equiv': '=', r'\notin': r'\notin'}
_SETS = {r'\cup': r'\cup', r'\cap': r'\cap', r'\setminus': r'\setminus'}
_JOINTS = {'and': 'and', 'or': 'or', 'et': 'and', 'ou': 'or', 'und': 'and',
           'oder': 'or', r'\lor': 'or', r'\vee': 'or', r'\land': 'and',
           r'\wedge': 'and'}
_TEXT_JOINT = re.compile(
    r'\\text\s*\{([^{}]*?)(?<![a-zA-Z])(and|or)(?![a-zA-Z])([^{}]*)\}')
_EMPTY_TEXT = re.compile(r'\\text\s*\{[\s,.]*\}')
# What is said about a formula in front of it or behind it.
_QUALIFIER = re.compile(
    r'[,\s(]*(?:\\text\s*\{[\s,]*(?:for|where|with|when|if)\b[^{}]*\}'
    r'|(?<![a-zA-Z\\])(?:for|where|with)\s+(?:all|any|some|every|each|integers?'
    r'|real|positive|\\?[a-zA-Z]).*|(?:,|\()\s*(?:\\forall\s*)?[a-zA-Z]\s*'
    r'(?:,\s*[a-zA-Z]\s*)*\\in\s*\\mathbb\s*\{?[ZNQR]\}?).*$', re.DOTALL)
_PREFIX = re.compile(
    r'^(?:\\text\s*\{[^{}]*\}|(?:only|either|exactly|about|hence|thus|so'
    r'|therefore|approximately|just)(?![a-zA-Z]))[\s:,]*(?=\S)')
_LABEL = re.compile(r'^([A-Za-z][A-Za-z ]+):\s*(?=[-\\(0-9$.])')
_OUTWARD = (
    (re.compile(r'(^|\\cup|\\in|\\cap|=)\s*\](?=[^\[\]]+,[^\[\]]+[\[\]])'),
     r'\1('),
    (re.compile(r'([(\[][^\[\]]+,[^\[\]]+)\['), r'\1)'))
_MATRIX = re.compile(
    r'\\begin\{([pbB]?matrix|array|smallmatrix)\}(?:\{[lcr| ]*\})?'
    r'((?:(?!\\begin).)*)\\end\{\1\}', re.DOTALL)
_MOST_ITEMS = 200
_DEEPEST = 30


def qualifier(text: str) -> str:
  """What is said about an answer behind it: 'for some integer t'."""
  match = _QUALIFIER.search(text)
  return match[0] if match and match.start() else ''


@functools.lru_cache(maxsize=4096)
def parse(text: str, depth: int = 0) -> Node:
  """The structure of a text of `normalize.latex`.

  Args:
    text: an answer.
    depth: of brackets that it stands in; very deep ones are left as they are.
  """
  text = text.strip().strip(',;').strip()
  if depth > _DEEPEST or len(text) > 4000:
    return Leaf(text)
  if depth == 0:
    text = _prepared(text)
  text = _unwrapped(text)
  for split in (_series, _operation, _relation, _brackets, _ratio):
    node = split(text, depth)
    if node is not None:
      return node
  return Leaf(text)


def _prepared(text: str) -> str:
  said = _QUALIFIER.search(text)
  if said and said.start():
    text = text[:said.start()]
  for _ in range(8):
    text, changed = _TEXT_JOINT.subn(r'\\text{\1} \2 \\text{\3}', text)
    if not changed:
      break
  text = _EMPTY_TEXT.sub(' ', text)
  text = re.sub(r'^\s*\\approx(?![a-z])', '', text)
  if not re.search(r'[(\[{]', text):
    text = numbers.ungroup(text)
  for pattern, replacement in _OUTWARD:
    text = pattern.sub(replacement, text)
  return re.sub(r'(?<!\.)\.\s*$', '', text).strip()


def _unwrapped(text: str) -> str:
  """Without braces around all of it, and words in front of a formula."""
  for _ in range(8):
    if text.startswith('{') and _closes_at_end(text):
      text = text[1:-1].strip()
    else:
      break
  prefix = _PREFIX.match(text)
  if prefix:
    rest = text[prefix.end():]
    maths = re.sub(r'\\text\s*\{[^{}]*\}', ' ', rest)
    if re.search(r'[0-9=\\]', maths) and rest[0] != '^':
      text = rest
  return text


def tokens(text: str) -> list[tuple[str, int, int]]:
  """(token, where it starts, depth of brackets it stands in)."""
  result, depth = [], 0
  for match in _TOKEN.finditer(text):
    token = match[0]
    if token in _CLOSE:
      depth -= 1
    result.append((token, match.start(), depth))
    if token in _OPEN:
      depth += 1
  return result


def _closes_at_end(text: str) -> bool:
  """Whether the bracket at the start closes at the very end."""
  last = len(text)
  for token, start, depth in tokens(text)[1:]:
    if depth <= 0:
      return start + len(token) == last
  return False


def cut(text: str, separators) -> tuple[list[str], list[str]]:
  """Parts between separators outside brackets, and the separators."""
  parts, found, begin = [], [], 0
  for token, start, depth in tokens(text):
    if depth <= 0 and token in separators:
      parts.append(text[begin:start].strip())
      found.append(separators[token])
      begin = start + len(token)
  parts.append(text[begin:].strip())
  return parts, found


def _series(text: str, depth: int) -> Node | None:
  for separators in ({';': ';', r'\\': ';'}, _JOINTS, {',': ','}):
    parts, found = cut(text, separators)
    parts = [re.sub(r'^(?:and|or)\b', '', p).strip(' ,') for p in parts]
    filled = [part for part in parts if part]
    if len(filled) < 2 or len(filled) > _MOST_ITEMS:
      if found and len(filled) == 1 and filled[0] != text:
        return parse(filled[0], depth + 1)
      continue
    items = []
    for part in filled:
      items.extend(_flat(parse(part, depth + 1)))
    joint = 'or' if 'or' in found else found[0]
    items = _with_signs(items)
    return Series(text, tuple(items), joint)
  return _plus_minus(text, depth)


def _flat(node: Node) -> list[Node]:
  """Elements of a list in a list, but pairs of named values stay together."""
  if isinstance(node, Series) and node.joint in (',', 'and', 'or', 'pm'):
    names = [assigned(item) for item in node.items]
    if not all(names) or len({n for n, _ in names}) < 2:
      return list(node.items)
  return [node]


def _with_signs(items: list[Node]) -> list[Node]:
  """Members of a set that stand for two."""
  result = []
  for item in items:
    result.extend(item.items if isinstance(item, Series)
                  and item.joint == 'pm' else [item])
  return result


def _plus_minus(text: str, depth: int) -> Node | None:
  r"""Both, or all, readings of `\pm`, anywhere in a text."""
  count = len(re.findall(r'\\(?:pm|mp)(?![a-z])', text))
  if not 0 < count <= 4 or r'\begin' in text or text.startswith(r'\{'):
    return None
  # In one formula the signs go together; elements of a tuple are on their own.
  inner, _ = cut(text[1:-1], {',': ','}) if text[:1] == '(' else ([text], [])
  texts = [text]
  if len(inner) > 1:
    for _ in range(count):
      texts = [re.sub(r'\\(?:pm|mp)(?![a-z])\s*', sign, t, count=1)
               for t in texts for sign in '+-']
  else:
    texts = [re.sub(r'\\pm(?![a-z])\s*', a,
                    re.sub(r'\\mp(?![a-z])\s*', b, text))
             for a, b in ('+-', '-+')]
  texts = [re.sub(r'(^|[(,={])\s*\+', r'\1', t) for t in texts]
  return Series(text, tuple(parse(t, depth + 1) for t in texts), 'pm')


def _operation(text: str, depth: int) -> Node | None:
  if '\\c' not in text and '\\setminus' not in text and not re.match(
      r'[\[({\\].*[\])}]\s*-\s*\\\{', text):
    return None
  parts, found = cut(text, {**_SIGNS, **_SETS})
  if any(sign in _SIGNS.values() for sign in found):
    return None
  if not found:
    parts = re.split(r'(?<=[\])}])\s*-\s*(?=\\\{)', text)
    found = [r'\setminus'] * (len(parts) - 1)
  if len(parts) < 2 or len(set(found)) != 1 or not all(parts):
    return None
  items = tuple(parse(part, depth + 1) for part in parts)
  return Operation(text, items, found[0])


def _relation(text: str, depth: int) -> Node | None:
  label = _LABEL.match(text)
  if label:
    text = f'{label[1].strip()}={text[label.end():]}'
  parts, found = cut(text, _SIGNS)
  if r'\approx' in found and found.index(r'\approx'):
    # What a value is near to is no part of it.
    keep = found.index(r'\approx')
    parts, found = parts[:keep + 1], found[:keep]
    if not found:
      return parse(parts[0], depth + 1)
  elif r'\approx' in found and not name(parts[0]):
    return parse(parts[0], depth + 1)
  if not found:
    return None
  if len(parts) > 8 or not all(parts):
    return None
  return Relation(text, tuple(parts), tuple(found))


def _ratio(text: str, depth: int) -> Node | None:
  parts, found = cut(text, {':': ':'})
  if not found or not all(parts) or re.search(
      r'[apAP]\.?\s*[mM]', text):
    return None
  return Ratio(text, tuple(parse(part, depth + 1) for part in parts))


def _brackets(text: str, depth: int) -> Node | None:
  matrix = _MATRIX.fullmatch(text) or _MATRIX.fullmatch(text.strip('()[] '))
  if matrix:
    rows = [row for row in matrix[2].split(r'\\') if row.strip()]
    return Matrix(text, tuple(
        tuple(parse(entry, depth + 1) for entry in row.split('&'))
        for row in rows))
  opening = _TOKEN.match(text)
  if not opening or opening[0] not in ('(', '[', r'\{', r'\langle'):
    return None
  if not _closes_at_end(text):
    return None
  closing = re.search(r'(?:\\rangle|\\?\}|\]|\))$', text)
  inner = text[opening.end():closing.start()].strip()
  if opening[0] == r'\{':
    return _set(text, inner, depth)
  parts, found = cut(inner, {',': ',', ';': ','})
  if not found:
    if opening[0] == '(':
      return parse(inner, depth + 1)
    return Leaf(text)
  items = tuple(parse(part, depth + 1) for part in parts)
  left, right = opening[0], closing[0]
  if left == r'\langle':
    left, right = '(', ')'
  if any(isinstance(i, Series) and i.joint == 'pm' for i in items):
    return _plus_minus(text, depth)
  return Tuple(text, items, left, right)


def _set(text: str, inner: str, depth: int) -> Node:
  if not inner:
    return Leaf(r'\emptyset')
  parts, _ = cut(inner, {'|': '|', r'\mid': '|', ':': '|'})
  if len(parts) == 2 and re.search(r'[<>=]|\\(?:le|ge|ne|in)(?![a-z])',
                                   parts[1]):
    return Builder(text, parse(parts[1], depth + 1))
  node = parse(inner, depth + 1)
  if isinstance(node, Series):
    return Series(text, node.items, '{')
  return Series(text, (node,), '{')


_NAME = re.compile(
    r'(?:\\text\s*\{[^{}]*\}'
    r'|m?\s*\\(?:angle|triangle|overline|vec|hat|bar|mathbf|widehat'
    r'|operatorname|mathcal|max|min)?\s*(?:\\?[a-zA-Z]+|\{[A-Za-z ]+\})'
    r'|[a-zA-Z]+(?: [a-zA-Z]+)*|[A-Z]+)'
    r"'*(?:_(?:\{[^{}]*\}|[a-zA-Z0-9])|\^\{-1\}|\^-1)*'*"
    r'(?:\s*\(([^()]*)\))?')
_PRODUCT = re.compile(r'[a-z]{2,}')


def name(text: str) -> str:
  r"""The name that a side of an equation is, or '': `x_1`, `f(x)`, `|AB|`."""
  text = re.sub(r'\\(?:text|mathrm)\s*\{([a-zA-Z ]*)\}', r'\1', text).strip()
  bare = text.strip('|').strip()
  if re.search(r'[+*^0-9-]', re.sub(r'_(?:\{[^{}]*\}|\w)|\^\{-1\}|\([^()]*\)',
                                    '', bare)):
    return ''
  quotient = re.fullmatch(r'\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}', bare)
  if quotient:
    return bare if all(map(name, quotient.groups())) else ''
  if ':' in bare:
    return bare if all(map(name, bare.split(':'))) else ''
  if bare.startswith('(') and _closes_at_end(bare):
    parts, _ = cut(bare[1:-1], {',': ','})
    return bare if all(map(name, parts)) else ''
  match = _NAME.fullmatch(bare)
  # xy is a product of two, AB a segment, area a word.
  if match and re.fullmatch(r'[a-z]{2,3}', bare):
    return ''
  return bare if match else ''


def assigned(node: Node) -> tuple[str, str] | None:
  """Name and value of an assignment, or None: ('x', '5') of x = y = 5."""
  if not isinstance(node, Relation) or set(node.signs) - {
      '=', r'\in', r'\approx'}:
    return None
  first, last = node.sides[0], node.sides[-1]
  if name(first):
    return name(first), last
  if len(node.sides) == 2 and name(last) and node.signs == ('=',):
    return name(last), first
  return None
