"""A point of the space of rules put together from parts, with what is lost."""
import dataclasses
import math
from typing import Any, Iterable, Mapping, NamedTuple

from rlclip.losses import LossSpec, mismatch, Penalty, reduce
from rlclip.trust_region import bounds, gates, levels

_REGISTRIES = {
    'bounds': bounds.REGISTRY, 'gate': gates.REGISTRY,
    'level': levels.REGISTRY, 'mismatch': mismatch.REGISTRY,
    'reduction': reduce.REGISTRY}
# Under whichever name LossSpec keeps an entropy bonus, if it has one.
_ENTROPY = ('entropy_bonus', 'entropy_coefficient', 'entropy_coef', 'entropy')
# Names of the mismatch corrections by what k is taken of. Of the last, the
# sequence's geometric mean decides, and the token's k weighs.
_TRUNCATED = {
    'token': ('truncated_importance',),
    'sequence': ('sequence_truncated_importance', 'sequence_importance',
                 'sequence_tis')}
_MASKED = {
    'token': ('icepop',),
    'sequence': ('sequence_icepop', 'sequence_mask', 'sequence_mis'),
    'geometric': ('sequence_mask_truncated_importance', 'seq_mask_tis',
                  'sequence_mask_tis')}
# k1 in the reward, as far as one token's advantage can hold it.
_IN_REWARD = {'measure': 'reverse_kl', 'estimator': 'score',
              'placement': 'inside'}


class Note(NamedTuple):
  """A warning: the option that it is about, and what is different."""
  option: str
  text: str


class Setting(NamedTuple):
  """Something that is no part of the rule: of the data, or of the learner."""
  name: str
  value: Any
  option: str


class Part(NamedTuple):
  """Some axes, and what goes with them."""
  axes: Mapping[str, Any] = {}
  notes: tuple[Note, ...] = ()
  settings: tuple[Setting, ...] = ()


class Point(NamedTuple):
  """The nearest point, its surroundings, and what it does not hold."""
  spec: LossSpec
  notes: tuple[Note, ...]
  settings: tuple[Setting, ...]


def choose(axis: str, names: tuple[str, ...], *, option: str, instead: Any,
           numbers: Mapping[str, Any] | None = None) -> Part:
  """A value of an axis by name, where it is there, and what stands in if not.

  Args:
    axis: an axis of LossSpec that has a registry.
    names: the first registered one is taken.
    option: of the other library, that the value comes from.
    instead: the nearest value that there always is.
    numbers: hyperparameters; 'delta|threshold' sets the first of these fields.

  Returns:
    A Part with this axis.
  """
  registry = _REGISTRIES[axis]
  name = next((name for name in names if name in registry), None)
  if name is None:
    return Part({axis: instead}, (Note(option, (
        f'the {axis} {names[0]!r} is not available; the nearest is '
        f'{instead!r}')),))
  if axis == 'level':
    return Part({axis: name})
  kind, notes, fields = registry[name], [], {}
  own = {field.name for field in dataclasses.fields(kind)}
  for key, value in (numbers or {}).items():
    field = next((f for f in key.split('|') if f in own), None)
    if field is None:
      notes.append(Note(option, (
          f'the {axis} {name!r} has no {key.split("|")[0]!r}, so {value!r} '
          f'is lost')))
    else:
      fields[field] = value
  return Part({axis: kind(**fields)}, tuple(notes))


def fixed(low: float, high: float, option: str) -> Part:
  """[1 - low, 1 + high] as bounds."""
  if low < 0 or high < 0:
    raise ValueError(
        f'{option}: widths of the clip must be 0 or more, got {low} and '
        f'{high}.')
  return Part({'bounds': bounds.Fixed(low, high)})


def dual_clip(cap: float | None) -> Part:
  """PPO's gate, with a cap where A < 0 unless it is None."""
  return Part({'gate': gates.PessimisticMin() if cap is None
               else gates.DualClip(cap)})


def truncated(high: float, option: str, level: str = 'token') -> Part:
  """min(k, high) before the loss, k of the token or the whole sequence."""
  return choose(
      'mismatch', _TRUNCATED[level], option=option,
      numbers={'truncation|mismatch_high': high},
      instead=mismatch.TruncatedImportance(high))


def masked(low: float, high: float | None, option: str,
           level: str = 'token') -> Part:
  """k before the loss where low <= k <= high, 0 elsewhere."""
  high = math.inf if high is None else high
  if not 0 <= low < 1 < high:
    return note(True, option, (
        f'the interval [{low:g}, {high:g}] does not hold 1, and would drop '
        f'what agrees: no correction'))
  return choose(
      'mismatch', _MASKED[level], option=option,
      numbers={'mismatch_low|low': low, 'mismatch_high|high': high},
      instead=mismatch.IcePop(low, high))


def penalty_in_reward(beta: float, option: str, before: str) -> Part:
  """The nearest to a k1 penalty that is subtracted from the reward."""
  if not beta:
    return Part()
  return Part({'penalty': Penalty(beta=beta, **_IN_REWARD)}, (Note(option, (
      f'k1 at the weights of the rollout is subtracted {before}. Here each '
      f'token has its own log(policy / reference) inside the advantage, with '
      f'the gradient held: lost is what a token owes for those after it, and '
      f'that the penalty stays put during the updates of a batch')),))


def entropy(coefficient: float | None, option: str) -> Part:
  """An entropy bonus, if LossSpec has a place for one."""
  if not coefficient:
    return Part()
  own = {field.name for field in dataclasses.fields(LossSpec)}
  field = next((name for name in _ENTROPY if name in own), None)
  if field is None:
    return Part(notes=(Note(option, 'no axis holds an entropy bonus: lost'),))
  return Part({field: coefficient})


def settings(*rows: tuple[str, Any, str]) -> Part:
  """Settings, without those that are None."""
  return Part(settings=tuple(
      Setting(*row) for row in rows if row[1] is not None))


def dynamic_sampling(option: str) -> Part:
  """Groups without signal are replaced, as often as it takes."""
  return Part({}, (Note(option, (
      'groups are replaced until the batch is full there, and at most '
      'rollout.max_refills times here')),), (
          Setting('rollout.max_refills', 3, option),))


def overlong(values: Mapping[str, Any], buffer: str, factor: str) -> Part:
  """DAPO's price on the last tokens before the limit."""
  return settings(('reward.overlong_buffer', values[buffer], buffer),
                  ('reward.overlong_factor', values[factor], factor))


def note(when: Any, option: str, text: str) -> Part:
  """A warning, if `when` is true."""
  return Part(notes=(Note(option, text),) if when else ())


def unfiltered(values: Mapping[str, Any],
               neutral: Mapping[str, tuple[Any, ...]]) -> Part:
  """A warning for each option that cuts off a part of the distribution."""
  return Part(notes=tuple(Note(option, (
      'changes the policy that samples, and is refused here: its log-probs '
      'would be those of another distribution'))
      for option, allowed in neutral.items() if values[option] not in allowed))


def join(parts: Iterable[Part]) -> Point:
  """The point of all parts; of two for one axis the last one counts.

  What one axis makes of another is settled here: a gate without bounds, a gate
  that looks at tokens only, a penalty that a gate does not take inside.
  """
  parts = list(parts)
  axes = {k: v for part in parts for k, v in part.axes.items()}
  notes = [n for part in parts for n in part.notes]
  gate, penalty = axes['gate'], axes.get('penalty')
  if not gate.uses_bounds:
    axes['bounds'] = None
  if gate.only_tokens or isinstance(
      gate, (gates.GeometricMean, gates.Unweighted)):
    axes['level'] = 'token'
  if penalty and penalty.placement == 'inside' and not gate.takes_inside:
    axes['penalty'] = dataclasses.replace(penalty, placement='beside')
    notes.append(Note('', (
        f'{type(gate).__name__} takes no penalty inside the advantage; it '
        f'stands beside the loss, with the same gradient, unclipped')))
  if penalty and axes.get('mismatch') is not None:
    notes.append(Note('', (
        'the mismatch weight multiplies the policy term there, and policy '
        'term and penalty here')))
  return Point(LossSpec(**axes), tuple(notes),
               tuple(s for part in parts for s in part.settings))
