r"""One formula of one answer to a sympy tree, by math-verify's parser.

The parser is latex2sympy2_extended, which math-verify is built on. It never
sees more than a short formula with shallow brackets, and the tree it returns is
not evaluated: `values` does that within bounds. What the parser gets wrong is
rewritten before it: `1000(26)` would be 1026, `\cot t \cdot x` the cotangent of
`tx`, decimals binary floats.
"""
import functools
import re
from typing import Any

import antlr4
from latex2sympy2_extended import latex2sympy2
import sympy

_LONGEST, _DEEPEST = 1200, 24

_DEGREES = re.compile(r'([0-9]+(?:\.[0-9]+)?|\}|\))\s*\^\s*\\circ(?![a-z])')
_DECIMAL = re.compile(r'(?<![0-9_.])([0-9]*)\.([0-9]+)')
_EXPONENT = re.compile(r'(?<=[0-9])[eE]([+-]?[0-9]{1,6})(?![0-9a-zA-Z])')
_MIXED = re.compile(
    r'(?<![0-9.}^_a-zA-Z)])([0-9]+)\s*(\\frac\s*\{[0-9]+\}\s*\{[0-9]+\})'
    r'|(?<![0-9.}^_a-zA-Z)/])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)(?![0-9])')
_FUNCTION = re.compile(
    r'\\(arcsin|arccos|arctan|arccot|arcsec|arccsc|sinh|cosh|tanh|sin|cos|tan'
    r'|cot|sec|csc|ln|log|exp)(?![a-zA-Z])')
_ATOM = re.compile(
    r'\s*(?:[0-9]+|\\(?!cdot|times|div|pm|mp|le|ge|ne|sin|cos|tan|cot|sec|csc'
    r'|ln|log|exp|arc|in|to|cup|cap|quad|[lr]floor'
    r'|[lr]ceil)(?:frac|binom)?[a-zA-Z]*|[a-zA-Z])'
    r'\'*')
_ARGUMENT_GROUPS = re.compile(r'\s*[_^]?\s*(?=[{\[])|\s*[_^]\s*'
                              r'(?:[0-9a-zA-Z]|\\[a-z]+)')
# Not parsed: what would have to be computed, or is no number.
_LEFT_OUT = re.compile(
    r'\\(?:ldots|int|lim|begin|partial|det|operatorname)(?![a-z])')
# Letters before a bracket that are functions; others are factors.
_CALLED = 'fghFGHPQW'
_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in [
    (r'\\(?:lg)(?![a-z])', r'\\log_{10} '),
    (r'\\(?:tg|arctg|ctg)(?![a-z])',
     lambda m: {'t': r'\tan ', 'a': r'\arctan ', 'c': r'\cot '}[m[0][1]]),
    (r'\\pmod\s*\{([^{}]*)\}', ''),
    (r'\*\*', '^'), (r'\*', r'\\cdot '), (r'\\times(?![a-z])', r'\\cdot '),
    (r'\\(?:bar|overline|vec|overrightarrow|hat|widehat|tilde)\s*\{([a-zA-Z]+)'
     r'\}', r'\\text{\1}'),
    (r'\\(hbar|nabla)(?![a-z])', r'\\text{\1}'),
    (r'\\ell(?![a-z])', 'l'), (r'\\imath(?![a-z])', 'i'),
    # Symbols that the parser takes for constants.
    (r'\\gamma(?![a-z])', r'\\text{smallgamma}'),
    (r'(?<![\\a-zA-Z{])I(?![a-zA-Z])', r'\\text{capitali}'),
    (r'(?<![\\a-zA-Z{])E(?=\s*_)', r'\\text{capitale}'),
    (r'(?<![\\a-zA-Z])d(?=[a-zA-Z])(?!\w*\})', r'd\\cdot '),
    (r'([a-zA-Z])\'+', lambda m: f'\\text{{{m[1]}prime{len(m[0])}}}'),
    (r'(?<![_^][0-9])(?<=[0-9)])\s*(?=\()', r'\\cdot '),
    (rf'(?<![\\a-zA-Z])((?![{_CALLED}])[a-zA-Z])\s*(?=\()', r'\1\\cdot '),
    (r'\(\s*\)', ''), (r'\\\$', ''), (r'"', ''),
])


_CONFIG = latex2sympy2.ConversionConfig(lowercase_symbols=False)


class _Converter(latex2sympy2._Latex2Sympy):
  """The parser, without what it computes while it parses."""

  def parse(self, text: str) -> Any:
    """The same tree as its own start rule gives, in half the time.

    That rule reads a whole formula ahead, as a set, a list and a relation in
    turn, before it reads it as the expression that it nearly always is. And
    prediction by SLL gives the tree of LL or a syntax error, for less: ANTLR's
    own advice is to try it first.
    """
    if text.lstrip().startswith(('{', r'\{')):  # may be a set, to that rule
      return super().parse(text)
    for mode in (antlr4.PredictionMode.SLL, antlr4.PredictionMode.LL):
      parser, tree = self.create_parser(text), None
      parser._interp.predictionMode = mode
      with _ParserErrors():
        tree = parser.expr()
      if tree and parser.getCurrentToken().type == antlr4.Token.EOF:
        return self.convert_expr(tree)
    return super().parse(text)

  def handle_gcd_lcm(self, f: str, args):
    return sympy.Function(f)(*args)


def _parse(text: str) -> Any:
  # Else binomials, exponentials and the like are computed, of any size.
  with sympy.evaluate(False):
    return _Converter(is_real=True, config=_CONFIG).parse(text)


@functools.lru_cache(maxsize=2048)
def parse(text: str) -> Any | None:
  """The sympy tree of a formula, not evaluated, or None.

  Args:
    text: of `normalize.latex`, without relations, lists and units.
  """
  if len(text) > _LONGEST or _depth(text) > _DEEPEST or not text.strip():
    return None
  if _LEFT_OUT.search(text):
    return None
  tree = None
  with _ParserErrors():
    tree = _parse(rewrite(text))
  # Not sets, relations and matrices, which `structure` keeps apart.
  return tree if _is_expression(tree) else None


def matrix(text: str) -> Any | None:
  """The matrix that a short formula with matrices comes to, or None."""
  if _depth(text) > _DEEPEST:
    return None
  text = re.sub(r'\\(begin|end)\{(?:[bB]?matrix|array|smallmatrix)\}'
                r'(?:\{[lcr| ]*\})?', r'\\\1{pmatrix}', text)
  tree = None
  with _ParserErrors():
    tree = _parse(_with_fractions(text))
  if not getattr(tree, 'is_Matrix', False):
    return None
  if any(part.is_Pow and not part.exp.is_number for part in
         sympy.preorder_traversal(tree) if isinstance(part, sympy.Basic)):
    return None
  value = None
  with _ParserErrors():
    value = tree.doit()
  return value if hasattr(value, 'flat') else None


def _with_fractions(text: str) -> str:
  return _DECIMAL.sub(_as_fraction, text)


def _is_expression(tree: Any) -> bool:
  return isinstance(tree, sympy.Expr)


class _ParserErrors:
  """Anything a formula makes the parser raise means: this is no formula.

  The parser's own errors are bare `Exception`s, and sympy's are of all kinds.
  """

  def __enter__(self):
    return self

  def __exit__(self, kind, error, trace) -> bool:
    return isinstance(error, Exception)


def _depth(text: str) -> int:
  depth = deepest = 0
  for char in text:
    if char in '{([':
      depth += 1
      deepest = max(deepest, depth)
    elif char in '})]':
      depth -= 1
  return deepest


def rewrite(text: str) -> str:
  """The formula in the dialect that the parser reads right."""
  text = _DEGREES.sub(
      lambda m: (r'(%s\cdot\frac{\pi}{180})' % m[1] if m[1] not in '})'
                 else m[1] + r'\cdot\frac{\pi}{180}'), text)
  text = _EXPONENT.sub(r'\\cdot 10^{\1}', text)
  text = _MIXED.sub(_sum, text)
  text = _DECIMAL.sub(_as_fraction, text)
  for pattern, replacement in _RULES:
    text = pattern.sub(replacement, text)
  return _with_brackets(text)


def _sum(match: re.Match) -> str:
  whole, fraction, plain, top, bottom = match.groups()
  if whole:
    return f'({whole}+{fraction})'
  return f'({plain}+\\frac{{{top}}}{{{bottom}}})'


def _as_fraction(match: re.Match) -> str:
  whole, rest = match.groups()
  return f'(\\frac{{{int((whole + rest) or 0)}}}{{1{"0" * len(rest)}}})'


def _with_brackets(text: str) -> str:
  r"""Puts the arguments of `\sin 2x` and the like into brackets."""
  done, position = [], 0
  while match := _FUNCTION.search(text, position):
    start = _behind_scripts(text, match.end())
    end = _argument_end(text, start)
    done.append(text[position:start])
    position = start
    stripped = text[start:end].strip()
    if stripped and not stripped.startswith('('):
      done.append(f'({_with_brackets(stripped)})')
      position = end
  return ''.join(done) + text[position:]


def _behind_scripts(text: str, start: int) -> int:
  """Behind the exponent and the base of a function's name."""
  while match := re.compile(
      r'\s*[_^]\s*(?:[0-9a-zA-Z]|(?=\{))').match(text, start):
    start = match.end()
    if text.startswith('{', start):
      start = _group_end(text, start)
  return start


def _argument_end(text: str, start: int) -> int:
  """Where the argument that stands without brackets ends."""
  position = re.compile(r'\s*-?').match(text, start).end()
  if re.compile(r'\s*[({|]').match(text, position):
    opening = re.compile(r'\s*').match(text, position).end()
    if text[opening] == '{':
      return _group_end(text, opening)
    return start if text[opening] == '(' else _absolute_end(text, opening)
  while match := _ATOM.match(text, position):
    position = match.end()
    while group := _ARGUMENT_GROUPS.match(text, position):
      position = group.end()
      if position < len(text) and text[position] in '{[':
        position = _group_end(text, position)
  return position


def _absolute_end(text: str, start: int) -> int:
  stop = text.find('|', start + 1)
  return stop + 1 if stop > 0 else start


def _group_end(text: str, start: int) -> int:
  """Behind the bracket that closes the one at `start`."""
  close = {'{': '}', '[': ']', '(': ')'}[text[start]]
  depth = 0
  for position in range(start, len(text)):
    if text[position] == text[start]:
      depth += 1
    elif text[position] == close:
      depth -= 1
      if not depth:
        return position + 1
  return len(text)
