"""Compares two structures part by part."""
import re
from typing import Sequence

from rlclip.rewards.math import (latex, matrices, normalize, quantities,
                                 realsets, structure, values, words)

Leaf, Series, Tuple = structure.Leaf, structure.Series, structure.Tuple
Relation, Matrix, Ratio = (
    structure.Relation, structure.Matrix, structure.Ratio)
Node = structure.Node
_WHOLE = re.compile(r'integer|\\mathbb\s*\{?\s*[ZN]|whole|natural')
_STEPS = 'knmljz'


def same(gold: str, answer: str) -> bool:
  """Whether two answers are the same, as the package defines it.

  Args:
    gold: reference, of `normalize.latex`.
    answer: to compare with it.
  """
  left, right = structure.parse(gold), structure.parse(answer)
  if nodes(left, right):
    return True
  for renamed in _renamings(gold, answer, left, right):
    if nodes(left, structure.parse(renamed)):
      return True
  return False


def readable(gold: str) -> bool:
  """Whether a reference is anything that an answer could be compared with."""
  return _readable(structure.parse(gold))


def _readable(node: Node) -> bool:
  if isinstance(node, Leaf):
    # What has words, dots or environments in it is compared as text.
    if re.search(r'\\(?:text|ldots|begin|emptyset|infty|mathbb)|[^\W\d_]{3}',
                 node.text):
      return True
    return bool(
        quantities.quantity(node.text).number or quantities.base(node.text)
        or words.clock(node.text) or words.gold_choice(node.text)
        or latex.parse(quantities.quantity(node.text).text) is not None)
  if isinstance(node, Relation):
    return all(_readable(structure.parse(side, 1)) for side in node.sides)
  if isinstance(node, Matrix):
    return all(_readable(entry) for row in node.rows for entry in row)
  if isinstance(node, structure.Builder):
    return _readable(node.condition)
  return all(map(_readable, node.items))


def nodes(gold: Node, answer: Node) -> bool:
  """Whether two structures are the same."""
  if normalize.key(gold.text) == normalize.key(answer.text):
    return True
  for rule in (_series, _sets, _relations, _vectors, _ratios):
    verdict = rule(gold, answer)
    if verdict is not None:
      return verdict
  if isinstance(gold, Leaf) and isinstance(answer, Leaf):
    return _leaves(gold.text, answer.text)
  return False


def _leaves(gold: str, answer: str) -> bool:
  times = words.clock(gold), words.clock(answer)
  if any(times):
    return times[0] == times[1]
  if words.are_words(gold) and words.plain(gold) == words.plain(answer):
    return True
  if not re.search('[0-9]', gold) and words.are_words(gold) and (
      words.are_words(answer)) and not words.number(gold):
    return False
  if quantities.same(gold, answer):
    return True
  spelled = [words.number(text) for text in (gold, answer)]
  return any(spelled) and (spelled[0] or gold) == (spelled[1] or answer)


def _named(node: Node) -> list[tuple[str, str]] | None:
  """Names and values of a list such as x=1, y=2, all names different."""
  if not isinstance(node, Series) or node.joint == 'or':
    return None
  pairs = [structure.assigned(item) for item in node.items]
  if None in pairs or len({name for name, _ in pairs}) < len(pairs):
    return None
  return pairs


def _value(node: Node) -> Node:
  pair = structure.assigned(node)
  return structure.parse(pair[1], 1) if pair else node


def _items(node: Node) -> list[Node]:
  """Elements, with x=2 or x=3 being 2 and 3."""
  if isinstance(node, Relation):
    node = _value(node)
  if not isinstance(node, Series):
    return [node]
  result = []
  for item in node.items:
    value = _value(item)
    result.extend(value.items if isinstance(value, Series)
                  and value.joint == 'pm' else [value])
  return result


def _series(gold: Node, answer: Node) -> bool | None:
  if not isinstance(gold, Series) and not isinstance(answer, Series):
    inner = [_value(n) for n in (gold, answer)]
    if not any(isinstance(n, Series) for n in inner):
      return None
    return _unordered(_items(gold), _items(answer), braces=False)
  pieces = realsets.read(gold), realsets.read(answer)
  if None not in pieces:
    return realsets.same(*pieces)
  names = _named(gold), _named(answer)
  if names[0] and names[1]:
    return _both_named(*names)
  if any(names):
    ordered = _in_order(gold, answer)
    if ordered is not None:
      return ordered
  left, right = _items(gold), _items(answer)
  joints = {n.joint for n in (gold, answer) if isinstance(n, Series)}
  for node, other in ((gold, answer), (answer, gold)):
    if isinstance(_value(node), Tuple) and isinstance(other, Series):
      # (1, 2) and a list 1, 2 that nothing calls a set.
      return other.joint == ',' and _all(_value(node).items, _items(other))
  return _unordered(left, right, braces='{' in joints)


def _both_named(gold: list, answer: list) -> bool:
  by_name = [{name.lower().replace(' ', ''): value for name, value in pairs}
             for pairs in (gold, answer)]
  if by_name[0].keys() == by_name[1].keys():
    return all(_texts(value, by_name[1][name])
               for name, value in by_name[0].items())
  return len(gold) == len(answer) and all(
      _texts(a, b) for (_, a), (_, b) in zip(gold, answer))


def _texts(gold: str, answer: str) -> bool:
  return nodes(structure.parse(gold, 1), structure.parse(answer, 1))


def _in_order(gold: Node, answer: Node) -> bool | None:
  """Named values against bare ones, in the order in which they stand."""
  sides = []
  for node in (gold, answer):
    node = _value(node)
    if isinstance(node, Series) and node.joint != '{':
      sides.append(_items(node))
    elif isinstance(node, Tuple):
      sides.append(list(node.items))
    else:
      return None
  return _all(*sides)


def _all(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
  return len(gold) == len(answer) and all(map(nodes, gold, answer))


def _unordered(
    gold: list[Node], answer: list[Node], *, braces: bool) -> bool:
  """Each element has its partner; in braces, repeated ones count once."""
  if braces:
    gold, answer = _distinct(gold), _distinct(answer)
  if len(gold) != len(answer):
    return False
  left = list(answer)
  for item in gold:
    found = next((i for i, other in enumerate(left) if nodes(item, other)),
                 None)
    if found is None:
      return False
    del left[found]
  return True


def _distinct(items: list[Node]) -> list[Node]:
  result: list[Node] = []
  for item in items:
    if not any(nodes(item, other) for other in result):
      result.append(item)
  return result


def _sets(gold: Node, answer: Node) -> bool | None:
  if isinstance(gold, Tuple) and isinstance(answer, Tuple):
    return None
  pieces = realsets.read(gold), realsets.read(answer)
  if None in pieces:
    return None
  names = [realsets.variable(node) for node in (gold, answer)]
  if all(names) and names[0].lower() != names[1].lower():
    return False
  return realsets.same(*pieces)


def _relations(gold: Node, answer: Node) -> bool | None:
  sides = [isinstance(node, Relation) for node in (gold, answer)]
  if not any(sides):
    return None
  pairs = structure.assigned(gold), structure.assigned(answer)
  if all(pairs):
    if not _names_agree(pairs[0][0], pairs[1][0]):
      return all(sides) and _equations(gold, answer)
    return _texts(pairs[0][1], pairs[1][1]) or (
        all(sides) and _equations(gold, answer))
  if all(sides):
    return _equations(gold, answer)
  if pairs[0]:
    return nodes(_value(gold), answer)
  if pairs[1]:
    return nodes(gold, _value(answer))
  results = _result(gold), _result(answer)
  if results != (gold, answer):
    return nodes(*results)
  return False


def _result(node: Node) -> Node:
  """Of a calculation, 3 * 4 = 12, its last side."""
  if isinstance(node, Relation) and set(node.signs) == {'='} and not re.search(
      r'(?<![\\a-zA-Z])[a-zA-Z](?![a-zA-Z])', node.text):
    return structure.parse(node.sides[-1], 1)
  return node


def _names_agree(gold: str, answer: str) -> bool:
  """Functions may have any name; x = 5 is not y = 5."""
  if '(' in gold and '(' in answer:
    return True
  return (gold.lower().replace(' ', '') == answer.lower().replace(' ', '')
          or min(len(gold), len(answer)) > 2)


def _equations(gold: Relation, answer: Relation) -> bool:
  """Whether two relations hold for the same values of their variables."""
  if len(gold.signs) != len(answer.signs):
    return False
  if len(gold.signs) > 1:
    return _chains(gold, answer)
  flipped = realsets.FLIP.get(answer.signs[0])
  readings = []
  if gold.signs == answer.signs:
    readings.append(answer.sides)
  if flipped == gold.signs[0]:
    readings.append(answer.sides[::-1])
  positive = gold.signs[0] not in ('=', r'\ne')
  return any(_proportional(gold.sides, sides, positive) for sides in readings)


def _chains(gold: Relation, answer: Relation) -> bool:
  for sides, signs in (
      (answer.sides, answer.signs),
      (answer.sides[::-1], tuple(
          realsets.FLIP.get(s, s) for s in answer.signs[::-1]))):
    if signs == gold.signs and all(map(_texts, gold.sides, sides)):
      return True
  return False


def _proportional(
    gold: Sequence[str], answer: Sequence[str], positive: bool) -> bool:
  """Whether the differences of the sides are one multiple of each other."""
  trees = [latex.parse(side) for side in (*gold, *answer)]
  if None in trees:
    return _all([structure.parse(s, 1) for s in gold],
                [structure.parse(s, 1) for s in answer])
  names = sorted(set().union(*map(values.variables, trees)))
  for tree in trees:
    if isinstance(tree, bool) or not hasattr(tree, 'free_symbols'):
      return False
  left, right = trees[0] - trees[1], trees[2] - trees[3]
  return values.proportional(left, right, names, positive=positive)


def _vectors(gold: Node, answer: Node) -> bool | None:
  """Tuples, matrices, and columns, which are tuples."""
  gold, answer = (
      matrices.computed(node.text) or node if isinstance(node, Leaf)
      and r'\begin' in node.text else node for node in (gold, answer))
  if isinstance(gold, Matrix) and isinstance(answer, Matrix):
    return len(gold.rows) == len(answer.rows) and all(
        map(_all, gold.rows, answer.rows))
  for matrix, other, swapped in ((gold, answer, False), (answer, gold, True)):
    if isinstance(matrix, Matrix) and isinstance(other, Tuple):
      if any(len(row) != 1 for row in matrix.rows):
        return False
      entries = [row[0] for row in matrix.rows]
      return (_all(other.items, entries) if swapped
              else _all(entries, other.items))
  if isinstance(gold, Tuple) and isinstance(answer, Tuple):
    if (gold.left, gold.right) != (answer.left, answer.right):
      return False
    pieces = realsets.read(gold), realsets.read(answer)
    if None not in pieces and any(
        r'\infty' in node.text for node in (gold, answer)):
      return realsets.same(*pieces)
    return _all(gold.items, answer.items)
  return None


def _ratios(gold: Node, answer: Node) -> bool | None:
  sides = [isinstance(node, Ratio) for node in (gold, answer)]
  if not any(sides):
    return None
  times = words.hours(gold.text), words.hours(answer.text)
  if any(time and (time[1] < 10 or time[1] % 10 == 0 and time[0] > 0
                   and len(node.text.strip()) == 5)
         for time, node in zip(times, (gold, answer))):
    return times[0] == times[1]
  texts = [[item.text for item in node.items]
           if isinstance(node, Ratio) else [node.text]
           for node in (gold, answer)]
  if len(texts[0]) != len(texts[1]):
    if sorted(map(len, texts)) != [1, 2]:
      return False
    quotients = [t[0] if len(t) == 1 else f'\\frac{{{t[0]}}}{{{t[1]}}}'
                 for t in texts]
    return quantities.same(*quotients)
  first = [t[0] for t in texts]
  return all(
      quantities.same(f'({a})\\cdot ({first[1]})', f'({b})\\cdot ({first[0]})')
      for a, b in zip(*texts))


def _letters(text: str) -> set[str]:
  text = re.sub(r'\\text\s*\{[^{}]*\}|\\mathbb\s*\{?[A-Z]\}?', ' ', text)
  return {token for part in re.findall(r'\\[a-zA-Z]+|[a-zA-Z]+', text)
          for token in ([] if part[0] == '\\' else part)}


def _renamings(gold: str, answer: str, left: Node, right: Node):
  """The answer with the reference's names for what may have any name."""
  arguments = [_arguments(node) for node in (left, right)]
  if all(arguments) and len(arguments[0]) == len(arguments[1]):
    yield _rename(answer, dict(zip(arguments[1], arguments[0])))
  said = structure.qualifier(gold) + structure.qualifier(answer)
  ours, theirs = (_letters(_values(node)) for node in (left, right))
  ours, theirs = ours - theirs, theirs - ours
  if len(ours) == len(theirs) == 1:
    mine, other = ours.pop(), theirs.pop()
    steps = (r'\pi' in gold and mine in _STEPS and other in _STEPS)
    if steps or _WHOLE.search(said):
      yield _rename(answer, {other: mine})
    if mine.lower() == other.lower():
      yield _rename(answer, {other: mine})


def _values(node: Node) -> str:
  """The text without the names that values are given to."""
  if isinstance(node, Series):
    return ','.join(map(_values, node.items))
  pair = structure.assigned(node)
  return pair[1] if pair else node.text


def _arguments(node: Node) -> list[str]:
  """Letters in the brackets of f(x) or of P(x, y), on the left of a '='."""
  if isinstance(node, Series):
    node = node.items[0]
  if not isinstance(node, Relation):
    return []
  call = re.search(r"[a-zA-Z]'*(?:\^\{?-1\}?)?\s*\(([a-z](?:\s*,\s*[a-z])*)\)",
                   node.sides[0])
  return re.findall('[a-z]', call[1]) if call else []


def _rename(text: str, names: dict[str, str]) -> str:
  def change(match: re.Match) -> str:
    if match[0][0] == '\\':
      return match[0]
    return ''.join(names.get(letter, letter) for letter in match[0])
  return re.sub(r'\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]+', change, text)
