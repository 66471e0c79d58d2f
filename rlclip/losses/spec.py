"""One point of the space of rules: a value on every axis, checked together."""
import dataclasses
import math
from typing import Any

from rlclip.losses import dials as dials_lib
from rlclip.losses import mismatch as mismatch_lib
from rlclip.losses import reduce
from rlclip.losses.penalty import Penalty
from rlclip.trust_region import bounds as bounds_lib
from rlclip.trust_region import gates, levels
from rlclip.types import Statistic

ANCHORS = ('behavior', 'old')


@dataclasses.dataclass(frozen=True)
class LossSpec:
  """An update rule. Frozen, hashable, comparable; no arrays.

  Attributes:
    bounds: how [low, high] is drawn, from trust_region.bounds; None with a
      gate that reads none.
    gate: what leaving it does, from trust_region.gates.
    level: whose ratio it is: 'token' or 'sequence'.
    anchor: the policy under the ratio: 'behavior' (the sampler's log-probs) or
      'old' (the learner's own at the batch's weights).
    penalty: a Penalty, or None.
    mismatch: a correction from losses.mismatch, or None.
    reduction: from losses.reduce.
    advantage: a name in rlclip.advantages, for whoever makes the batch.
    entropy_bonus: weight of the tokens' entropy, in units of reward a nat.
    width_dial: from losses.dials, moves the width of the bounds; None keeps
      it.
    beta_dial: from losses.dials, moves the penalty's beta; None keeps it.

  Raises:
    ValueError: for an axis of the wrong kind, an option that would have no
      effect, or values that exclude one another.
  """
  bounds: Any = bounds_lib.Fixed()
  gate: Any = gates.PessimisticMin()
  level: str = 'token'
  anchor: str = 'behavior'
  penalty: Penalty | None = None
  mismatch: Any = None
  reduction: Any = reduce.SequenceMean()
  advantage: str = 'group_zscore'
  entropy_bonus: float = 0.0
  width_dial: Any = None
  beta_dial: Any = None

  def __post_init__(self):
    levels.get(self.level)
    if self.anchor not in ANCHORS:
      raise ValueError(
          f'anchor must be one of {", ".join(ANCHORS)}, got {self.anchor!r}.')
    _check_kind('gate', self.gate, gates.REGISTRY, optional=False)
    _check_kind('bounds', self.bounds, bounds_lib.REGISTRY)
    _check_kind('mismatch', self.mismatch, mismatch_lib.REGISTRY)
    _check_kind('reduction', self.reduction, reduce.REGISTRY, optional=False)
    _check_kind('width_dial', self.width_dial, dials_lib.REGISTRY)
    _check_kind('beta_dial', self.beta_dial, dials_lib.REGISTRY)
    if not (self.penalty is None or isinstance(self.penalty, Penalty)):
      raise ValueError(
          f'penalty must be a losses.Penalty or None, got {self.penalty!r}.')
    if not 0 <= self.entropy_bonus < math.inf:
      raise ValueError(
          f'entropy_bonus must be finite and 0 or more, got '
          f'{self.entropy_bonus}.')
    self._check_bounds()
    self._check_combinations()
    self._check_dials()

  @property
  def needs_reference(self) -> bool:
    """Whether the loss reads the reference policy's log-probs."""
    return self.penalty is not None and self.penalty.toward == 'reference'

  @property
  def needs_old(self) -> bool:
    """Whether the learner has to recompute the log-probs of its batch."""
    return self.anchor == 'old'

  @property
  def needs_rewards(self) -> bool:
    """Whether the loss reads rewards and their group means."""
    return self.bounds is not None and self.bounds.needs_rewards

  @property
  def needs(self) -> tuple[Statistic, ...]:
    """Statistics of whole distributions that scoring has to compute."""
    parts = [x for x in (self.bounds, self.penalty) if x is not None]
    return tuple(sorted({need for part in parts for need in part.needs}))

  @property
  def needs_anchor_policy(self) -> bool:
    """Whether the learner has to keep the weights of the batch's start."""
    return any(need.toward == 'anchor' for need in self.needs)

  @property
  def whole_batch(self) -> bool:
    """Whether a token's gradient depends on other rows: then no micro-batches.
    """
    return self.gate.whole_batch or (
        self.bounds is not None and self.bounds.whole_batch)

  @property
  def dials(self) -> dict[str, Any]:
    """The dials by role, 'width' and 'beta'."""
    both = {'width': self.width_dial, 'beta': self.beta_dial}
    return {role: dial for role, dial in both.items() if dial is not None}

  def _check_bounds(self):
    if self.gate.uses_bounds and self.bounds is None:
      raise ValueError(
          f'Gate {self.gate} needs bounds, got None. Give some, or take '
          f"gate 'none'.")
    if not self.gate.uses_bounds and self.bounds is not None:
      raise ValueError(
          f'Gate {self.gate} reads no bounds, so {self.bounds} would have no '
          f'effect. Set bounds=None.')
    if (self.gate.uses_bounds and self.gate.needs_ends
        and not self.bounds.has_ends):
      raise ValueError(
          f'Gate {self.gate} clips to the ends of the region, and '
          f'{self.bounds} only says whether a token is in it. Take the gate '
          f"'pessimistic_min', 'unconditional' or 'masked_weight'.")
    if (self.gate.needs_ends and self.width_dial is not None
        and not self.bounds.has_ends_at_any_width):
      raise ValueError(
          f'Gate {self.gate} clips to the ends of the region, which '
          f'{self.bounds} has at its own width only. Set width_dial=None.')
    if self.level != 'token' and self.bounds is not None and (
        self.bounds.only_tokens):
      raise ValueError(
          f'{self.bounds} are drawn from the token\'s own probability, got '
          f"level {self.level!r}. Set level='token'.")
    if _has_bounds_by_sign(self.bounds) and not isinstance(
        self.gate, (gates.Unconditional, gates.ClippedWeight)):
      raise ValueError(
          f'Gate {self.gate} reads eps_low where A < 0 and eps_high where '
          f'A > 0, so the other two of {self.bounds} would have no effect. Use '
          f"Fixed bounds, or the gate 'unconditional'.")

  def _check_combinations(self):
    if self.mismatch is not None and self.anchor != 'old':
      raise ValueError(
          f'{self.mismatch} corrects old / behavior, and anchor='
          f"'{self.anchor}' has the whole ratio to the sampler already. Set "
          f"anchor='old' or mismatch=None.")
    if self.penalty is not None and self.penalty.placement == 'inside' and (
        not self.gate.takes_inside):
      raise ValueError(
          f"Gate {self.gate} takes no penalty inside the advantage. Set "
          f"placement='beside'.")
    if self.level != 'token' and self.gate.only_tokens:
      raise ValueError(
          f"Gate {self.gate} works on tokens, got level {self.level!r}. Set "
          f"level='token'.")

  def _check_dials(self):
    for role, dial, acts_on in (('width', self.width_dial, self.bounds),
                                ('beta', self.beta_dial, self.penalty)):
      if dial is None:
        continue
      if role not in dial.roles:
        raise ValueError(
            f'{dial} cannot move the {role}; it moves '
            f'{" or ".join(dial.roles)}.')
      if acts_on is None:
        raise ValueError(
            f'{role}_dial={dial} would have no effect: there is no '
            f'{"region" if role == "width" else "penalty"}. Set it to None.')


def _has_bounds_by_sign(bounds) -> bool:
  """Whether FixedBySign is among them, by itself or in a composition."""
  if isinstance(bounds, (bounds_lib.Intersection, bounds_lib.Union)):
    return any(map(_has_bounds_by_sign, (bounds.first, bounds.second)))
  return isinstance(bounds, bounds_lib.FixedBySign)


def _check_kind(axis, value, registry, optional=True):
  """Whether a value's class is registered on this axis."""
  if value is None and optional:
    return
  if not any(type(value) is registry[name] for name in registry):
    raise ValueError(
        f'{axis} must be an instance of one of '
        f'{", ".join(registry[name].__name__ for name in registry)}'
        f'{" or None" if optional else ""}, got {value!r}.')
