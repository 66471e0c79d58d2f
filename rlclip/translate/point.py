"""A point of the space of rules put together from parts, with what is lost."""
import dataclasses
import math
from typing import Any, Iterable, Mapping, NamedTuple

from rlclip.losses import dials, LossSpec, mismatch, Penalty
from rlclip.trust_region import bounds, gates

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


def masked(low: float, high: float | None, option: str,
           level: str = 'token') -> Part:
  """k before the loss where low <= k <= high, 0 elsewhere."""
  high = math.inf if high is None else high
  if not 0 <= low < 1 < high:
    return note(True, option, (
        f'the interval [{low:g}, {high:g}] does not hold 1, and would drop '
        f'what agrees: no correction'))
  return Part({'mismatch': mismatch.IcePop(low, high, level)})


def penalty_in_reward(beta: float, option: str, before: str) -> Part:
  """The nearest to a k1 penalty that is subtracted from the reward."""
  if not beta:
    return Part()
  return Part({'penalty': Penalty(beta=beta, **_IN_REWARD)}, (Note(option, (
      f'k1 at the weights of the rollout is subtracted {before}. Here each '
      f'token has its own log(policy / reference) inside the advantage, with '
      f'the gradient held: lost is what a token owes for those after it, and '
      f'that the penalty stays put during the updates of a batch')),))


def steered(target: float, rows: int, horizon: float, updates: int,
            option: str) -> Part:
  """Adaptive beta, moved by rows / horizon a rollout batch."""
  return Part({'beta_dial': dials.TargetKL(target, rows / horizon / updates)}, (
      Note(option, (
          f'beta moves once a rollout batch there, by k1; here after each of '
          f'its {updates} updates, by the penalty\'s own value')),))


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
  if gate.only_tokens:
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
