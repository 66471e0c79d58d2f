"""Plain values as JSON, between a process that is trusted and one that isn't.

What comes out of `decode` is built here, of exactly Python's own types: nothing
of the sender's code, no method and no `__eq__`, comes with it. Nothing here
imports rlclip.
"""
import collections
import decimal
import fractions
import json
import os
import struct
from typing import Any, Callable

_SIZE = struct.Struct('!I')
_EXACT_INTS = 1 << 53
LARGEST_BYTES = 8 << 20  # of a message: more is taken for an attack


def encode(value: Any, keep: Callable[[Any], int]) -> Any:
  """Turns a value into what JSON can hold.

  Values of subclasses go as their base, so an int that equals everything goes
  as the int it is.

  Args:
    value: anything.
    keep: files what is not plain, and returns the number it goes by.
  """
  if value is None or value is True or value is False:
    return value
  if isinstance(value, str):
    return str.__str__(value)
  if isinstance(value, int):
    value = int.__index__(value)
    # Python refuses to read long ints in decimal.
    return value if abs(value) < _EXACT_INTS else ['int', hex(value)]
  if isinstance(value, float):
    return float.__float__(value)
  if type(value) in _SPECIAL:
    tag, parts = _SPECIAL[type(value)]
    return [tag, *parts(value)]
  if isinstance(value, type) and vars(_BUILTINS).get(value.__name__) is value:
    return ['type', value.__name__]
  for kind, tag in _CONTAINERS:
    if isinstance(value, kind):
      return [tag, *(encode(item, keep) for item in kind.__iter__(value))]
  if isinstance(value, dict):
    return ['dict', *(
        [encode(k, keep), encode(v, keep)] for k, v in dict.items(value))]
  return ['kept', keep(value)]


def decode(node: Any, kept: Callable[[int], Any]) -> Any:
  """Builds the value that `encode` was given.

  Args:
    node: of JSON.
    kept: from a number to what stands for a value that is not plain.

  Raises:
    ValueError, TypeError, KeyError: the node does not come from `encode`.
  """
  if not isinstance(node, list):
    if isinstance(node, dict):
      raise ValueError('Expected an encoded value, got an object.')
    return node
  tag, *parts = node
  if tag == 'kept':
    return kept(parts[0])
  if tag == 'dict':
    return {decode(k, kept): decode(v, kept) for k, v in parts}
  if tag in _BUILDERS:
    return _BUILDERS[tag]([decode(part, kept) for part in parts])
  return _ATOMS[tag](*parts)


def send(descriptor: int, message: Any) -> None:
  """Writes one message."""
  data = json.dumps(message).encode()
  data = _SIZE.pack(len(data)) + data
  while data:
    data = data[os.write(descriptor, data):]


def receive(descriptor: int) -> Any:
  """Reads one message.

  Raises:
    EOFError: the other end is closed.
    ValueError: the message is too large, or no JSON.
  """
  size, = _SIZE.unpack(_read(descriptor, _SIZE.size))
  if size > LARGEST_BYTES:
    raise ValueError(f'Expected {LARGEST_BYTES} bytes at most, got {size}.')
  return json.loads(_read(descriptor, size))


def _read(descriptor: int, size: int) -> bytes:
  data = bytearray()
  while len(data) < size:
    part = os.read(descriptor, min(size - len(data), 1 << 20))
    if not part:
      raise EOFError('The other end of the pipe is closed.')
    data += part
  return bytes(data)


def _builtin_type(name: str) -> type:
  value = vars(_BUILTINS)[name]
  if not isinstance(value, type):
    raise ValueError(f'Expected the name of a type, got {name!r}.')
  return value


_BUILTINS = __import__('builtins')
_SPECIAL = {
    complex: ('complex', lambda v: (v.real, v.imag)),
    bytes: ('bytes', lambda v: (v.hex(),)),
    bytearray: ('bytearray', lambda v: (v.hex(),)),
    range: ('range', lambda v: (hex(v.start), hex(v.stop), hex(v.step))),
    decimal.Decimal: ('decimal', lambda v: (str(v),)),
    fractions.Fraction: (
        'fraction', lambda v: (hex(v.numerator), hex(v.denominator))),
}
_CONTAINERS = (
    (list, 'list'), (tuple, 'tuple'), (set, 'set'), (frozenset, 'frozenset'),
    (collections.deque, 'deque'), (type({}.keys()), 'set'))
_BUILDERS = {
    'list': list, 'tuple': tuple, 'set': set, 'frozenset': frozenset,
    'deque': collections.deque}
_ATOMS = {
    'int': lambda text: int(text, 16),
    'complex': complex,
    'bytes': bytes.fromhex,
    'bytearray': bytearray.fromhex,
    'range': lambda *parts: range(*(int(part, 16) for part in parts)),
    'decimal': decimal.Decimal,
    'fraction': lambda *parts: fractions.Fraction(
        *(int(part, 16) for part in parts)),
    'type': _builtin_type,
}
