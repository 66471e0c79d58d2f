"""Collectives of a compiled program, read off its text.

A collective in the body of a loop counts as often as the loop runs, where the
text says how often.
"""
import collections
import dataclasses
import re
from typing import Iterator, NamedTuple

KINDS = ('all-gather', 'all-reduce', 'reduce-scatter', 'all-to-all',
         'collective-permute', 'ragged-all-to-all', 'collective-broadcast')

_BITS = {'pred': 8, 's4': 4, 'u4': 4, 's8': 8, 'u8': 8, 's16': 16, 'u16': 16,
         's32': 32, 'u32': 32, 's64': 64, 'u64': 64, 'bf16': 16, 'f16': 16,
         'f32': 32, 'f64': 64, 'c64': 64, 'c128': 128}
_SHAPE = re.compile(r'\b(\w+)\[([\d,]*)\]')
_HEADER = re.compile(r'^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{')
_INSTRUCTION = re.compile(r'^\s+(?:ROOT )?%?([\w.\-]+) = (.*)')
_OPCODE = re.compile(r'(?<=[\s)}\]])([a-z][\w\-]*)\(')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CHANNEL = re.compile(r'\bchannel_id=(\d+)')
_CALLED = re.compile(
    r'\b(?:calls|to_apply|true_computation|false_computation|async_wrapped)='
    r'%?([\w.\-]+)')
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')


@dataclasses.dataclass(frozen=True)
class Collective:
  """Equal collectives of a program.

  Attributes:
    kind: one of KINDS.
    bytes: of the larger of what one device puts in and gets out.
    group: devices that exchange with one another; 0 where it is not said.
    count: how often it runs.
    exact: False in a loop whose number of rounds the text does not tell: it
      is then counted once a round, for one round.
  """
  kind: str
  bytes: int
  group: int
  count: int
  exact: bool

  def seconds(self, rate: float) -> float:
    """A bound from below: what each device must send, at `rate` bytes/s.

    In a ring of g devices an all-gather, reduce-scatter or all-to-all sends
    (g - 1) / g of the whole, an all-reduce twice that.
    """
    share = (self.group - 1) / self.group if self.group else 1.0
    times = {'all-reduce': 2.0}.get(self.kind, 1.0)
    if self.kind == 'collective-permute':
      share = 1.0
    return self.count * self.bytes * times * share / rate


class _Instruction(NamedTuple):
  name: str
  shape: str
  opcode: str
  rest: str


def collectives(text: str) -> list[Collective]:
  """All collectives of a compiled module, equal ones together.

  Args:
    text: of `jax.stages.Compiled.as_text()`.

  Returns:
    By bytes in all, most first.

  Raises:
    ValueError: the text has no entry computation.
  """
  parts, entry = _computations(text)
  if entry is None:
    raise ValueError('Expected the text of an HLO module with an ENTRY.')
  by_channel = {}
  for name, (times, exact) in _times(parts, entry).items():
    for instruction in parts[name]:
      kind = _kind(instruction.opcode)
      if kind:
        key = (kind, _bytes(kind, instruction), _group(instruction.rest), exact)
        # An asynchronous one may be spread over several fusions, and stands
        # in each, on the same channel.
        channel = _CHANNEL.search(instruction.rest)
        where = (kind, channel[1]) if channel else (name, instruction.name)
        by_channel[where] = max(by_channel.get(where, (0, key)), (times, key))
  found = collections.Counter()
  for times, key in by_channel.values():
    found[key] += times
  made = [Collective(kind, size, group, count, exact)
          for (kind, size, group, exact), count in found.items()]
  return sorted(made, key=lambda c: (-c.bytes * c.count, c.kind, c.group))


def shape_bytes(shape: str) -> int:
  """Bytes of 'f32[8,128]{1,0}', or of all parts of a tuple of shapes."""
  return sum(map(_part_bytes, _SHAPE.findall(shape)))


def _part_bytes(part) -> int:
  dtype, sizes = part
  bits = _BITS.get(dtype, 8 if dtype.startswith('f8') else 0)
  for size in filter(None, sizes.split(',')):
    bits *= int(size)
  return bits // 8


def _computations(text):
  """({computation: its instructions}, name of the entry)."""
  parts, entry, current = {}, None, None
  for line in text.splitlines():
    header = _HEADER.match(line)
    if header:
      current = header[2]
      parts[current] = []
      entry = current if header[1] else entry
    elif current is not None:
      instruction = _parse(line)
      if instruction:
        parts[current].append(instruction)
  return parts, entry


def _parse(line) -> _Instruction | None:
  match = _INSTRUCTION.match(line)
  opcode = match and _OPCODE.search(' ' + match[2])
  if not opcode:
    return None
  start = opcode.start() - 1
  return _Instruction(
      match[1], match[2][:start], opcode[1], match[2][start:])


def _kind(opcode) -> str | None:
  # The second half of an asynchronous pair moves nothing more.
  opcode = opcode.removesuffix('-start')
  return opcode if opcode in KINDS else None


def _bytes(kind, instruction) -> int:
  sizes = [_part_bytes(part) for part in _SHAPE.findall(instruction.shape)]
  if not instruction.opcode.endswith('-start'):
    total = sum(sizes)
  elif kind == 'all-reduce':
    total = sum(sizes)  # results alone
  else:
    # Operands and results in one tuple; a permute has counters besides.
    total = max(sizes, default=0)
  if kind == 'reduce-scatter':
    total *= max(_group(instruction.rest), 1)
  return total


def _group(rest) -> int:
  """Devices in a group, in whichever way they are written."""
  listed = re.search(r'replica_groups=\{\{([\d,]*)\}', rest)
  if listed:
    return len(listed[1].split(','))
  tiled = re.search(r'replica_groups=\[(\d+),(\d+)\]', rest)
  if tiled:
    return int(tiled[2])
  named = re.search(r'replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}', rest)
  if named:
    sizes = dict(pair.split('=') for pair in named[1].split(','))
    axes = [axis for axis in named[2].split(',') if axis]
    product = 1
    for axis in axes:
      product *= int(sizes[axis.strip()])
    return product
  pairs = re.search(r'source_target_pairs=\{(.*?)\}\}', rest)
  return pairs[1].count('{') if pairs else 0


def _times(parts, entry) -> dict[str, tuple[int, bool]]:
  """How often each computation runs, and whether that is known."""
  times = {entry: (1, True)}
  # Callees stand before their callers in the text.
  for caller in reversed(list(parts)):
    if caller not in times:
      continue
    count, exact = times[caller]
    for callee, rounds in _calls(parts, caller):
      before, before_exact = times.get(callee, (0, True))
      times[callee] = (
          before + count * (rounds or 1),
          before_exact and exact and rounds is not None)
  return times


def _calls(parts, caller) -> Iterator[tuple[str, int | None]]:
  """(computation, rounds or None) of what one computation calls."""
  for instruction in parts[caller]:
    rest = instruction.rest
    if instruction.opcode == 'while':
      body = re.search(r'body=%?([\w.\-]+)', rest)[1]
      condition = re.search(r'condition=%?([\w.\-]+)', rest)[1]
      yield body, _rounds(parts, rest, condition)
      continue
    branches = _BRANCHES.search(rest)
    names = _CALLED.findall(rest) + re.findall(
        r'[\w.\-]+', branches[1] if branches else '')
    yield from ((name, 1) for name in names if name in parts)


def _rounds(parts, rest, condition) -> int | None:
  """Of a loop: as the compiler says, or from `i < constant`, i from 0 by 1."""
  known = _TRIPS.search(rest)
  if known:
    return int(known[1])
  instructions = {i.name: i for i in parts.get(condition, ())}
  compares = [i for i in instructions.values() if i.opcode == 'compare']
  if len(compares) != 1 or 'direction=LT' not in compares[0].rest:
    return None
  operands = re.findall(r'%([\w.\-]+)', compares[0].rest.split(')')[0])
  for name in operands:
    constant = re.match(
        r'constant\((\d+)\)', instructions[name].rest
    ) if name in instructions else None
    if constant:
      return int(constant[1])
  return None
