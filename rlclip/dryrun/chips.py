"""Published figures of accelerators, and slices of them by name."""
import dataclasses
import math
import re

GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Chip:
  """One accelerator, as its maker describes it.

  Attributes:
    kind: 'tpu' or 'gpu'.
    hbm: bytes of memory.
    flops: bf16 FLOP/s of dense products, at the peak.
    hbm_rate: bytes/s from and to its memory.
    link_rate: bytes/s that it sends to its neighbors, all links together;
      half of what is published as bidirectional.
    dims: of the torus; 0 for a switch.
    cores: devices that a chip may appear as, each with its share.
    source: of the figures.
  """
  kind: str
  hbm: int
  flops: float
  hbm_rate: float
  link_rate: float
  dims: int
  cores: int
  source: str


_TPU = 'Cloud TPU documentation, TPU '
CHIPS = {
    'v4': Chip('tpu', 32 * GIB, 275e12, 1228e9, 300e9, 3, 2, _TPU + 'v4'),
    'v5e': Chip('tpu', 16 * GIB, 197e12, 819e9, 200e9, 2, 1, _TPU + 'v5e'),
    'v5p': Chip('tpu', 95 * GIB, 459e12, 2765e9, 600e9, 3, 2, _TPU + 'v5p'),
    'v6e': Chip('tpu', 32 * GIB, 918e12, 1638e9, 400e9, 2, 1, _TPU + 'v6e'),
    'h100': Chip('gpu', 80 * GIB, 989e12, 3350e9, 450e9, 0, 1,
                 'NVIDIA H100 data sheet, SXM'),
    'h200': Chip('gpu', 141 * 10 ** 9, 989e12, 4800e9, 450e9, 0, 1,
                 'NVIDIA H200 data sheet, SXM'),
}

# Share of the memory that programs may have: compilers keep the rest (v5e's
# says "of 15.75G").
USABLE = 0.984


@dataclasses.dataclass(frozen=True)
class Slice:
  """Chips that work together.

  Attributes:
    name: as it was asked for, 'v5e:8x8'.
    chip: what they are.
    num_chips: how many.
    num_devices: as JAX sees them.
  """
  name: str
  chip: Chip
  num_chips: int
  num_devices: int

  @property
  def _share(self) -> float:
    return self.num_chips / self.num_devices

  @property
  def hbm(self) -> float:
    """Bytes of memory a device."""
    return self.chip.hbm * self._share

  @property
  def usable(self) -> float:
    """Bytes that a program may take of them."""
    return self.hbm * USABLE

  @property
  def flops(self) -> float:
    """FLOP/s a device."""
    return self.chip.flops * self._share

  @property
  def hbm_rate(self) -> float:
    """Bytes/s of memory a device."""
    return self.chip.hbm_rate * self._share

  @property
  def link_rate(self) -> float:
    """Bytes/s that a device sends."""
    return self.chip.link_rate * self._share


def parse(topology: str) -> Slice:
  """The slice of this name: 'v5e:8x8', or 'h100:8' by the number alone.

  Raises:
    ValueError: an unknown chip, or a shape that it does not come in.
  """
  name, _, shape = topology.partition(':')
  if name not in CHIPS:
    raise ValueError(
        f'Unknown chip {name!r} in the topology {topology!r}. Known: '
        f'{", ".join(CHIPS)}.')
  chip = CHIPS[name]
  sizes = shape.split('x')
  dims = chip.dims or 1
  if not re.fullmatch(r'[1-9]\d*(x[1-9]\d*)*', shape) or len(sizes) != dims:
    example = 'x'.join(['4'] * dims)
    raise ValueError(
        f'A slice of {name} has {dims} size{"s" * (dims > 1)}, as '
        f"'{name}:{example}', got {topology!r}.")
  count = math.prod(map(int, sizes))
  return Slice(topology, chip, count, count)
