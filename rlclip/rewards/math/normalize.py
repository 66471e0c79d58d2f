r"""One spelling for what can be spelled in many ways; still LaTeX.

Nothing here changes what a text means: `\dfrac12` becomes `\frac{1}{2}`,
`x ≤ ½` becomes `x \le \frac{1}{2}`, full-width digits become ASCII ones.
"""
import functools
import re
import unicodedata

_UNICODE = {
    '\u2212': '-', '\u2013': '-', '\u2014': '-', '\ufe63': '-', '\u2010': '-',
    '\u2011': '-', '\u00d7': r'\times ', '\u00b7': r'\cdot ',
    '\u22c5': r'\cdot ', '\u2217': '*', '\u00f7': r'\div ',
    '\u2215': '/', '\u2044': '/', '\u221a': r'\sqrt ', '\u221e': r'\infty ',
    '\u2264': r'\le ', '\u2a7d': r'\le ', '\u2265': r'\ge ',
    '\u2a7e': r'\ge ', '\u2260': r'\ne ', '\u2248': r'\approx ',
    '\u00b0': r'^\circ ', '\u00ba': r'^\circ ', '\u222a': r'\cup ',
    '\u2229': r'\cap ', '\u2208': r'\in ', '\u2205': r'\emptyset ',
    '\u00b1': r'\pm ', '\u2213': r'\mp ', '\u2032': "'", '\u2019': "'",
    '\u211d': r'\mathbb{R}', '\u2124': r'\mathbb{Z}', '\u2115': r'\mathbb{N}',
    '\u211a': r'\mathbb{Q}', '\u03c0': r'\pi ', '\u03b8': r'\theta ',
    '\u03b1': r'\alpha ', '\u03b2': r'\beta ', '\u03b3': r'\gamma ',
    '\u03bb': r'\lambda ', '\u03bc': r'\mu ', '\u03c6': r'\phi ',
    '\u03c4': r'\tau ', '\u03c9': r'\omega ', '\u0394': r'\Delta ',
    '\u2220': r'\angle ', '\u27e8': r'\langle ', '\u27e9': r'\rangle ',
    '\u3008': r'\langle ', '\u3009': r'\rangle ', '\u066a': '%',
    '\u066b': '.', '\u066c': ',', '\u3002': '.', '\u3001': ',',
    '\u060c': ',', '\u061b': ';', '\u2192': r'\to ',
    '\u00bd': r'\frac{1}{2}', '\u00bc': r'\frac{1}{4}',
    '\u00be': r'\frac{3}{4}', '\u2153': r'\frac{1}{3}',
    '\u2154': r'\frac{2}{3}', '\u215b': r'\frac{1}{8}',
    '\u00a0': ' ', '\u202f': ' ', '\u2009': ' ', '\u3000': ' ',
    '\u200b': '', '\u201c': '"', '\u201d': '"', '\u2018': "'",
}
_SUPERSCRIPTS = str.maketrans(
    '\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b'
    '\u207a\u207f', '0123456789-+n')
_SUBSCRIPTS = str.maketrans(
    '\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089',
    '0123456789')
_RAISED = re.compile(
    '[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a\u207b\u207f]+')
_LOWERED = re.compile('[\u2080-\u2089]+')

_FUNCTIONS = (
    'arcsin|arccos|arctan|arccot|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln'
    '|exp|max|min|gcd|lcm|det')
# Units of one letter; behind a number they keep their `\text`.
_UNITS = 'mgshLlNJWVK'


def _letter(match: re.Match) -> str:
  before = match.string[:match.start()].rstrip()
  if match[1] in _UNITS and before and (before[-1].isdigit()
                                        or before[-1] in '.}'):
    return f'\\text{{{match[1]}}}'
  return match[1]


# Command: what stands for it. In this order.
_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in [
    # Back-slashes doubled on their way through JSON, but not a new row.
    (r'\\\\(?=(?:d?frac|sqrt|boxed|text|pi|times|cdot|left|right|le|ge|in'
     r'|cup|infty|pm)(?![a-z]))', r'\\'),
    (r'\\\\\s*\[[^\]]{0,10}(?:pt|em|ex|mm|cm)\]', r'\\\\'),
    # Thousands: 1{,}000 and 1,\!000.
    (r'(?<=[0-9])\s*(?:\{\s*,\s*\}|,\s*\\!|\\,|\\!)\s*'
     r'(?=[0-9]{3}(?![0-9]))', ''),
    (r'\{:\}', ':'),
    (r'\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\.?', ''),
    (r'\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|therefore'
     r'|because|rm|bf|it|large|Large|small|normalsize|centering)'
     r'(?![a-zA-Z])', ' '),
    (r'\\(?:quad|qquad|enspace|thinspace|space|hfill|newline)(?![a-zA-Z])'
     r'|(?<!\\)\\[,;:!> ]|(?<!\\)~', ' '),
    (r'\\(?:hspace|vspace|label|tag)\*?\{[^{}]*\}|\\(?:h|v)?phantom\{[^{}]*\}',
     ' '),
    (r'\\[dtc]frac(?![a-zA-Z])', r'\\frac'),
    (r'\\[dt]binom(?![a-zA-Z])', r'\\binom'),
    (r'\\(?:textbf|textit|textrm|textsf|texttt|textnormal|text|mbox|mathrm'
     r'|mathit|mathbf|mathsf|boldsymbol|operatorname\*?|emph|underline|bm)'
     r'\s*\{\s*([a-zA-Z])\s*\}(?!\s*\w)', _letter),
    (r'\\(?:mathrm|operatorname\*?|text)\s*\{\s*(' + _FUNCTIONS + r')\s*\}',
     r'\\\1 '),
    (r'\\(?:textbf|textit|textrm|textsf|texttt|textnormal|mbox|mathrm|mathit'
     r'|mathbf|mathsf|operatorname\*?|emph|textup)\s*(?=\{)', r'\\text'),
    (r'\\(?:boldsymbol|bm|underline|ensuremath|mathop|displaylines)\s*(?=\{)',
     ''),
    (r'\\mathbf\s+(?=[a-zA-Z0-9])', ''),
    (r'\\leqslant|\\leqq?(?![a-z])|\\le(?=[a-z](?![a-z]))|<=|=<', r'\\le '),
    (r'\\geqslant|\\geqq?(?![a-z])|\\ge(?=[a-z](?![a-z]))|>=', r'\\ge '),
    (r'\\lt(?![a-z])|&lt;', '<'), (r'\\gt(?![a-z])|&gt;', '>'),
    (r'\\neq(?![a-z])|!=|\\not\s*=|/=', r'\\ne '),
    (r'\\(?:cupdot|sqcup|bigcup|uplus|union)(?![a-z])', r'\\cup '),
    (r'\\(?:varnothing|O(?![a-zA-Z]))', r'\\emptyset '),
    (r'\\(?:lvert|rvert|vert)(?![a-z])', '|'),
    (r'\\(?:lbrace)(?![a-z])', r'\\{'), (r'\\(?:rbrace)(?![a-z])', r'\\}'),
    (r'\\(?:lbrack)(?![a-z])', '['), (r'\\(?:rbrack)(?![a-z])', ']'),
    (r'\\(?:ldots|dots[a-z]?|cdots)(?![a-z])|\.\.\.', r'\\ldots '),
    (r'\\colon(?![a-z])', ':'), (r'\\ast(?![a-z])', '*'),
    (r'\\backslash(?![a-z])', r'\\setminus '),
    (r'\\(?:degree|textdegree)(?![a-z])', r'^\\circ '),
    (r'\^\s*\{\s*\\circ\s*\}', r'^\\circ '),
    (r'(?<=[0-9])\s*\\circ(?![a-z])', r'^\\circ '),
    (r'\\(?:varphi)(?![a-z])', r'\\phi '),
    (r'\\(?:textasciitilde|approxeq|simeq|cong)(?![a-z])', r'\\approx '),
    (r'\\(?:infin|infinity)(?![a-z])|\+\s*\\infty', r'\\infty '),
    (r'\{\s*\\infty\s*\}', r'\\infty '),
    (r'\\\{\s*\\\}', r'\\emptyset '), (r'\\%', '%'), (r'\\[$]', r'\\$'),
])
_REPEATING = re.compile(
    r'(?<![0-9.])([0-9]*)\.([0-9]*)\\(?:overline|bar|dot)\s*\{([0-9]+)\}')
_OVER = re.compile(r'\{([^{}]*)\\over(?![a-z])([^{}]*)\}')
_CHOOSE = re.compile(r'\{([^{}]*)\\choose(?![a-z])([^{}]*)\}')
_BARE_FRACTION = re.compile(
    r'\\frac\s*(?:([0-9a-zA-Z])|(\{(?:[^{}]|\{[^{}]*\})*\}))'
    r'\s*(?:([0-9a-zA-Z])|(?=\{))')
_BARE_ROOT = re.compile(
    r'\\sqrt\s*(\[[^\]]*\])?\s*(?:([0-9a-zA-Z])|(\\[a-z]+)|\(([^()]*)\))')
_PLAIN_WORDS = re.compile(
    r'(?<![\\a-zA-Z])(sqrt|pi|infinity|infty|' + _FUNCTIONS + r')'
    r'(?<!min)(?<!max)(?<!det)(?![a-zA-Z])'
    r'(?=\s*[({^_0-9a-zA-Z\\]|\s*$|\s*[-+*/),\]])')
_RAISED_GROUP = re.compile(r'\^\s*\(([^()]*)\)')
# Longer texts are compared as they are.
LONGEST = 4000


def to_ascii(text: str) -> str:
  """Digits of any script and mathematical signs, as ASCII and LaTeX."""
  if text.isascii():
    return text
  text = _RAISED.sub(
      lambda m: '^{' + m[0].translate(_SUPERSCRIPTS) + '}', text)
  text = _LOWERED.sub(
      lambda m: '_{' + m[0].translate(_SUBSCRIPTS) + '}', text)
  return ''.join(map(_character, text))


def digits(text: str) -> str:
  """Digits of any script as ASCII ones, all else as it is."""
  if text.isascii():
    return text
  return re.sub(r'[^\W\D]', lambda m: str(unicodedata.decimal(m[0])), text)


@functools.lru_cache(maxsize=4096)
def _character(char: str) -> str:
  if char in _UNICODE:
    return _UNICODE[char]
  if char.isascii():
    return char
  digit = unicodedata.digit(char, None)
  if digit is not None:
    return str(digit)
  plain = unicodedata.normalize('NFKC', char)
  return plain if len(plain) == 1 and plain.isascii() else char


@functools.lru_cache(maxsize=4096)
def latex(text: str) -> str:
  """The usual spelling of a formula; see the module.

  Args:
    text: an answer, not a whole response.

  Returns:
    The text, unchanged where it is too long to be an answer.
  """
  if len(text) > LONGEST:
    return text.strip()
  text = to_ascii(text)
  for pattern, replacement in _RULES:
    text = pattern.sub(replacement, text)
  text = _REPEATING.sub(_repeating, text)
  text = _delimiters(text)
  text = _outside_text(text, _spelled)
  return re.sub(r'\s+', ' ', text).strip()


def _spelled(text: str) -> str:
  """Plain-text functions, roots and fractions as LaTeX has them."""
  text = _PLAIN_WORDS.sub(
      lambda m: '\\' + {'infinity': 'infty'}.get(m[1], m[1]) + ' ', text)
  text = _OVER.sub(r'\\frac{\1}{\2}', text)
  text = _CHOOSE.sub(r'\\binom{\1}{\2}', text)
  text = _BARE_ROOT.sub(_root, text)
  for _ in range(2):
    text = _BARE_FRACTION.sub(_fraction, text)
  return _RAISED_GROUP.sub(r'^{\1}', text)


def _fraction(match: re.Match) -> str:
  top, group, bottom = match.groups()
  top = f'{{{top}}}' if top else group
  return f'\\frac{top}{{{bottom}}}' if bottom else f'\\frac{top}'


def _root(match: re.Match) -> str:
  index, letter, command, group = match.groups()
  inner = next(x for x in (letter, command, group) if x is not None)
  if command == '\\frac':
    return match[0]
  return f'\\sqrt{index or ""}{{{inner}}}'


def _repeating(match: re.Match) -> str:
  r"""0.1\overline{6} as a fraction."""
  whole, fixed, period = match.groups()
  shift = 10 ** len(fixed)
  below = shift * (10 ** len(period) - 1)
  above = int(whole + fixed + period) - int((whole + fixed) or 0)
  return f'\\frac{{{above}}}{{{below}}}'


def _outside_text(text: str, change) -> str:
  r"""Applies `change` to what is not inside `\text{...}`."""
  parts = re.split(r'(\\text\{[^{}]*\})', text)
  return ''.join(
      part if i % 2 else change(part) for i, part in enumerate(parts))


def _delimiters(text: str) -> str:
  """Drops math delimiters and Markdown, keeps dollars that are money."""
  text = re.sub(r'(?<!\\)\\[()\[\]](?!\w*pt\])', ' ', text)
  text = text.replace('$$', ' ').replace('`', ' ').replace('**', ' ')
  # A sign right before or behind a number, with no partner, is money.
  if text.replace('\\$', '').count('$') % 2:
    text = re.sub(r'(?<!\\)\$', r'\\$', text, count=1)
  text = re.sub(r'(?<!\\)\$', ' ', text)
  text = re.sub(r'\\(?:begin|end)\{(?:equation|align|aligned|gather|math'
                r'|displaymath|center)\*?\}', ' ', text)
  return text


def key(text: str) -> str:
  """A text without spaces, styling and outer brackets, to compare by eye."""
  text = re.sub(r'\\text\s*\{([^{}]*)\}', r'\1', text)
  text = re.sub(r'\{([0-9a-zA-Z])\}', r'\1', text)
  return re.sub(r'(?<![0-9])\s+|\s+(?![0-9])', '', text).rstrip('.')
