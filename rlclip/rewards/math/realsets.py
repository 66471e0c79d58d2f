r"""Sets of real numbers: intervals, unions, inequalities, conditions.

A set is a list of pieces with exact ends. `x>3`, `3<x`, `(3,\infty)` and
`\{x | x>3\}` are all the one piece from 3 to infinity.
"""
import functools
import re
from typing import NamedTuple

import sympy

from rlclip.rewards.math import latex, quantities, structure, values

_PLUS, _MINUS = r'\infty', r'-\infty'
FLIP = {'<': '>', '>': '<', r'\le': r'\ge', r'\ge': r'\le', '=': '=',
        r'\ne': r'\ne'}
_ORDER = ('<', '>', r'\le', r'\ge')
_ALL = re.compile(
    r'\\mathbb\s*\{?R\}?|\\R'
    r'|(?:\\text\s*\{\s*)?(?:all )?real(?: number)?s?\s*\}?',
    re.IGNORECASE)
_EMPTY = re.compile(
    r'\\emptyset|\\text\s*\{\s*(?:the )?empty set\s*\}|(?:the )?empty set'
    r'|\\text\s*\{\s*no (?:real )?solutions?\s*\}|no (?:real )?solutions?',
    re.IGNORECASE)
_MOST_PIECES = 60


class Piece(NamedTuple):
  """An interval; a point where both ends are the same and closed."""
  low: str
  low_open: bool
  high: str
  high_open: bool


Pieces = tuple[Piece, ...]
EVERYTHING = (Piece(_MINUS, True, _PLUS, True),)


def read(node: structure.Node) -> Pieces | None:
  """The pieces of a node, or None where it is no set of reals."""
  if isinstance(node, structure.Leaf):
    if _EMPTY.fullmatch(node.text):
      return ()
    return EVERYTHING if _ALL.fullmatch(node.text) else None
  if isinstance(node, structure.Tuple):
    return _interval(node)
  if isinstance(node, structure.Operation):
    return _operation(node)
  if isinstance(node, structure.Builder):
    return read(node.condition)
  if isinstance(node, structure.Relation):
    return _relation(node)
  if isinstance(node, structure.Series):
    return _series(node)
  return None


def variable(node: structure.Node) -> str:
  """The variable that an inequality is about, or ''."""
  if isinstance(node, structure.Builder):
    return ''
  if isinstance(node, structure.Series):
    names = {variable(item) for item in node.items}
    return names.pop() if len(names) == 1 else ''
  if not isinstance(node, structure.Relation):
    return ''
  named = [side for side in node.sides
           if structure.name(side) and '|' not in side]
  if len(named) == 1:
    return named[0].replace(' ', '')
  letters = {token for token, _, _ in structure.tokens(node.text)
             if token.isalpha() and len(token) == 1}
  return letters.pop() if len(letters) == 1 else ''


def _interval(node: structure.Tuple) -> Pieces | None:
  if len(node.items) != 2 or node.left not in '([' or node.right not in ')]':
    return None
  if not all(isinstance(item, structure.Leaf) for item in node.items):
    return None
  low, high = (item.text for item in node.items)
  return (Piece(low, node.left == '(', high, node.right == ')'),)


def _point(text: str) -> Piece:
  return Piece(text, False, text, False)


def _operation(node: structure.Operation) -> Pieces | None:
  parts = []
  for item in node.items:
    part = read(item)
    if part is None and isinstance(item, structure.Series):
      if item.joint == '{' and all(
          isinstance(i, structure.Leaf) for i in item.items):
        part = tuple(_point(i.text) for i in item.items)
    if part is None:
      return None
    parts.append(part)
  if node.sign == r'\cup':
    return tuple(piece for part in parts for piece in part)
  result = parts[0]
  for part in parts[1:]:
    other = part if node.sign == r'\cap' else complement(part)
    result = None if other is None else intersect(result, other)
    if result is None:
      return None
  return result


def _series(node: structure.Series) -> Pieces | None:
  parts = []
  for item in node.items:
    part = read(item)
    if part is None:
      value = structure.assigned(item)
      if value is None:
        return None
      part = (_point(value[1]),)
    parts.append(part)
  if all(map(structure.assigned, node.items)) or node.joint != 'or' and not any(
      isinstance(item, (structure.Relation, structure.Operation))
      for item in node.items):
    return None
  if node.joint == 'or' or any(map(structure.assigned, node.items)):
    return tuple(piece for part in parts for piece in part)
  result = parts[0]
  for part in parts[1:]:
    result = intersect(result, part)
    if result is None:
      return None
  return result


def _relation(node: structure.Relation) -> Pieces | None:
  if r'\in' in node.signs:
    # x in S, also -1 < x in S; the left side is a name.
    return (read(structure.parse(node.sides[-1], 1))
            if len(node.signs) == 1 else None)
  if len(node.sides) > 3 or set(node.signs) - set(FLIP):
    return None
  if node.signs == ('=',):
    return None
  named = [i for i, side in enumerate(node.sides)
           if structure.name(side) and '|' not in side]
  if len(node.sides) == 3:
    return _between(node) if named == [1] else _solved(node)
  if len(named) != 1 or _mentions(
      node.sides[1 - named[0]], node.sides[named[0]]):
    return _solved(node)
  value = node.sides[1 - named[0]]
  sign = node.signs[0] if named[0] == 0 else FLIP[node.signs[0]]
  return _half_line(sign, value)


def _half_line(sign: str, value: str) -> Pieces | None:
  if sign == r'\ne':
    return (Piece(_MINUS, True, value, True), Piece(value, True, _PLUS, True))
  if sign in ('<', r'\le'):
    return (Piece(_MINUS, True, value, sign == '<'),)
  return (Piece(value, sign == '>', _PLUS, True),)


def _between(node: structure.Relation) -> Pieces | None:
  low, _, high = node.sides
  first, second = node.signs
  if {first, second} <= {'>', r'\ge'}:
    low, high = high, low
    first, second = FLIP[second], FLIP[first]
  if not {first, second} <= {'<', r'\le'}:
    return None
  return (Piece(low, first == '<', high, second == '<'),)


def _mentions(text: str, name: str) -> bool:
  return name.strip() in [token for token, _, _ in structure.tokens(text)]


@functools.lru_cache(maxsize=512)
def _solved(node: structure.Relation) -> Pieces | None:
  """Solves short polynomial inequalities in one variable, with |.| in them."""
  trees = [latex.parse(side) for side in node.sides]
  if None in trees or set(node.signs) - set(_ORDER):
    return None
  kinds = {'<': sympy.Lt, '>': sympy.Gt, r'\le': sympy.Le, r'\ge': sympy.Ge}
  result = EVERYTHING
  for left, sign, right in zip(trees, node.signs, trees[1:]):
    if not _simple(left) or not _simple(right):
      return None
    unknowns = left.free_symbols | right.free_symbols
    if len(unknowns) != 1:
      return None
    unknown = unknowns.pop()
    plain = sympy.Symbol(unknown.name, real=True)
    difference = (left - right).doit().subs(unknown, plain)
    try:
      solution = sympy.solve_univariate_inequality(
          kinds[sign](difference, 0), plain, relational=False)
    except (NotImplementedError, ValueError, TypeError, AttributeError):
      return None
    pieces = _from_sympy(solution)
    result = None if pieces is None else intersect(result, pieces)
    if result is None:
      return None
  return result


def _simple(tree) -> bool:
  """Sums, products, small whole powers and absolute values of few parts."""
  count = 0
  for part in _nodes(tree):
    count += 1
    kind = type(part).__name__
    if count > 40:
      return False
    if kind == 'Pow':
      if not part.exp.is_Integer or abs(part.exp) > 4:
        return False
    elif not (part.is_Rational or kind in ('Symbol', 'Add', 'Mul', 'Abs')):
      return False
    elif part.is_Rational and max(abs(part.p), part.q) > 10 ** 12:
      return False
  return True


def _nodes(tree):
  yield tree
  for arg in tree.args:
    yield from _nodes(arg)


def _from_sympy(solution) -> Pieces | None:
  if solution is sympy.S.EmptySet:
    return ()
  if isinstance(solution, sympy.Union):
    parts = [_from_sympy(arg) for arg in solution.args]
    return None if None in parts else tuple(p for part in parts for p in part)
  if isinstance(solution, sympy.FiniteSet):
    return tuple(_point(sympy.latex(arg)) for arg in solution.args)
  if isinstance(solution, sympy.Interval) or solution is sympy.S.Reals:
    low, high = sympy.latex(solution.inf), sympy.latex(solution.sup)
    return (Piece(low, bool(solution.left_open), high,
                  bool(solution.right_open)),)
  return None


def place(text: str) -> float | None:
  """An end on the line, roughly; None where it is not a number."""
  text = text.replace(' ', '')
  if text in (_PLUS, '+' + _PLUS):
    return float('inf')
  if text == _MINUS:
    return -float('inf')
  quantity = quantities.quantity(text)
  if quantity.mark or quantity.label:
    return None
  if quantity.number:
    return float(quantity.number.value)
  tree = latex.parse(quantity.text)
  value = None if tree is None else values.rational(tree)
  return None if value is None else float(value)


def complement(pieces: Pieces) -> Pieces | None:
  """What is left of the line."""
  merged = merge(pieces)
  if merged is None:
    return None
  result, low, low_open = [], _MINUS, True
  for piece in merged:
    if place(piece.low) != -float('inf'):
      result.append(Piece(low, low_open, piece.low, not piece.low_open))
    low, low_open = piece.high, not piece.high_open
  if not merged or place(merged[-1].high) != float('inf'):
    result.append(Piece(low, low_open, _PLUS, True))
  return tuple(result)


def intersect(left: Pieces, right: Pieces) -> Pieces | None:
  """What both hold; None where ends are no numbers."""
  if left == EVERYTHING:
    return right
  if right == EVERYTHING:
    return left
  result = []
  for a in left:
    for b in right:
      ends = [place(end) for end in (a.low, b.low, a.high, b.high)]
      if None in ends:
        return None
      low = max((ends[0], a.low_open, a.low), (ends[1], b.low_open, b.low))
      high = min((ends[2], not a.high_open, a.high),
                 (ends[3], not b.high_open, b.high))
      if low[0] < high[0] or low[0] == high[0] and not low[1] and high[1]:
        result.append(Piece(low[2], low[1], high[2], not high[1]))
  return tuple(result)


def merge(pieces: Pieces) -> Pieces | None:
  """Sorted, joined where they touch; None where ends are no numbers."""
  placed = [(place(p.low), p.low_open, place(p.high), p) for p in pieces]
  if len(placed) > _MOST_PIECES or any(
      None in (low, high) for low, _, high, _ in placed):
    return None
  placed = [x for x in placed if x[0] < x[2] or x[0] == x[2]
            and not x[3].low_open and not x[3].high_open]
  placed.sort(key=lambda x: x[:2])
  result: list[Piece] = []
  for low, low_open, _, piece in placed:
    last = result[-1] if result else None
    if last:
      end = place(last.high)
      if low < end or low == end and not (low_open and last.high_open):
        high = max((end, not last.high_open, last.high),
                   (place(piece.high), not piece.high_open, piece.high))
        result[-1] = last._replace(high=high[2], high_open=not high[1])
        continue
    result.append(piece)
  return tuple(result)


def same(gold: Pieces, answer: Pieces) -> bool:
  """Whether two sets have the same points."""
  merged = merge(gold), merge(answer)
  if None in merged:
    # Ends with variables cannot be sorted: the same pieces in some order.
    return _match(gold, answer)
  return len(merged[0]) == len(merged[1]) and all(
      map(_same_piece, *merged))


def _match(gold: Pieces, answer: Pieces) -> bool:
  left = list(answer)
  for piece in gold:
    found = next((p for p in left if _same_piece(piece, p)), None)
    if found is None:
      return False
    left.remove(found)
  return not left


def _same_piece(a: Piece, b: Piece) -> bool:
  return (_same_end(a.low, a.low_open, b.low, b.low_open)
          and _same_end(a.high, a.high_open, b.high, b.high_open))


def _same_end(a: str, a_open: bool, b: str, b_open: bool) -> bool:
  ends = [place(end) for end in (a, b)]
  if float('inf') in map(abs, (e for e in ends if e is not None)):
    return ends[0] == ends[1]
  return a_open == b_open and quantities.same(a, b)
