"""Exact gradients of objectives, and gradients of losses over all samples.

All in float64. A rule is differentiated by the logits at every position of
every sequence, so that statistics of whole distributions count as well.
"""
import itertools
from typing import Any, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rlclip import divergences
from rlclip.losses import reduce, rule
from rlclip.losses.spec import LossSpec
from rlclip.oracle import compilation, distances
from rlclip.oracle.toy import Toy
from rlclip.trust_region import gates

Array = Any

# Of gradients of all batches, 8 bytes each.
_LARGEST = 20_000_000


class SampleGradients(NamedTuple):
  """Gradients of every batch of B sequences that can be drawn.

  K = M^B batches; B is 1 unless the rule looks at whole batches.
  """
  probabilities: np.ndarray  # [K], sum to 1
  sequences: np.ndarray  # int[K, B]
  logits: np.ndarray  # [K, B, T, V], of the loss's total
  weights: np.ndarray  # [K], of the loss

  def expected(self, toy: Toy) -> np.ndarray:
    """float64[R, V]: grad of E[total] / E[weight]."""
    shared = self.probabilities[:, None, None, None] * self.logits
    out = np.zeros((toy.num_rows, toy.num_tokens))
    np.add.at(out, toy.rows[self.sequences], shared)
    return out / (self.probabilities @ self.weights)

  def variance(self, toy: Toy) -> float:
    """Trace of the covariance of one sequence's gradient.

    With batches of B, B times that of their mean.
    """
    if self.sequences.shape[1] == 1:
      # The positions of one sequence are distinct rows of the table.
      squares = (self.logits ** 2).sum((1, 2, 3))
    else:
      table = np.zeros((len(self.logits), toy.num_rows, toy.num_tokens))
      batch = np.arange(len(table))[:, None, None]
      np.add.at(table, (batch, toy.rows[self.sequences]), self.logits)
      squares = (table ** 2).sum((1, 2))
    weight = self.probabilities @ self.weights
    second = self.probabilities @ squares / weight ** 2
    num_rows = self.sequences.shape[1]
    return float(num_rows * (second - (self.expected(toy) ** 2).sum()))


def objective(toy: Toy, logits: Array, *, rewards: Array,
              measure: str | None = None, beta: float = 0.0,
              target_logits: Array | None = None, mass: float = 1.0) -> Array:
  """J = E_p[R] - beta D(p || mass q), over the sequences of a context.

  Args:
    toy: the sequences.
    logits: float[R, V], of p; differentiable.
    rewards: float[M], one a sequence.
    measure: the divergence D, or None.
    beta: its weight.
    target_logits: float[R, V], of q.
    mass: total mass of an unnormalized q, 1 for a distribution. Else D is
      sum q f(p / q) with the generator f, as RPG's unnormalized KLs are.

  Returns:
    float64[].
  """
  with jax.enable_x64(True):
    p = toy.probabilities(_double(logits))
    value = jnp.sum(p * _double(rewards))
    if measure is None:
      return value
    if mass == 1.0:
      return value - beta * distances.of_sequences(
          toy, measure, _double(logits), _double(target_logits))
    log_q = jnp.log(mass * toy.probabilities(_double(target_logits)))
    generator = divergences.get(measure).generator
    distance = jnp.sum(jnp.exp(log_q) * generator(jnp.log(p) - log_q))
    return value - beta * distance


def exact_gradient(toy: Toy, logits: Array, **terms: Any) -> np.ndarray:
  """grad of `objective`, which takes the same arguments; float64[R, V]."""
  with jax.enable_x64(True):
    gradient = compilation.quick(
        jax.grad(lambda theta: objective(toy, theta, **terms)))
    return np.asarray(gradient(_double(logits)))


def sample_gradients(toy: Toy, specs: Sequence[LossSpec], logits: Array,
                     behavior_logits: Array, **inputs: Any
                     ) -> list[SampleGradients]:
  """Gradients of rules' losses, for all that the sampler can draw.

  Rules are compiled together, which for many takes much less time.

  Args:
    toy: the sequences.
    specs: the rules; of batches of one size where batch_size is None.
    logits: float[R, V], of the policy.
    behavior_logits: float[R, V], of the policy that samples.
    **inputs: the other arguments of `expected_gradient`.

  Returns:
    The SampleGradients of each rule.

  Raises:
    ValueError: if there are too many batches to list.
  """
  size = inputs.pop('batch_size', None) or max(
      2 if spec.whole_batch else 1 for spec in specs)
  sequences = _batches(toy, size)
  with jax.enable_x64(True):
    mass = inputs.pop('mass', 1.0)
    tables = {'behavior_logits': behavior_logits, **{
        k: inputs.pop(k, None) for k in ('old_logits', 'reference_logits')}}
    # Tables may be float32 where they were made outside of float64.
    at = {k.removesuffix('_logits'): _double(v)[toy.rows]
          for k, v in tables.items() if v is not None}
    rows = {k: jnp.asarray(v, jnp.result_type(v, float) if np.ndim(v) else None)
            for k, v in inputs.items() if v is not None}

    def mean(theta, index, spec):
      pick = lambda values: {
          k: v[index] if v.ndim else v for k, v in values.items()}
      seen = _inputs(toy, spec, theta, pick(at), index, mass, pick(rows))
      loss = rule.per_token(spec, seen).loss
      out = reduce.mean(loss, seen.mask, spec.reduction(seen.mask))
      return out.total, out.weight

    gradient = jax.grad(mean, has_aux=True)
    run = compilation.quick(lambda theta, index: [
        jax.vmap(lambda *x: gradient(*x, spec))(theta, index)
        for spec in specs])
    results = run(_double(logits)[toy.rows][sequences], jnp.asarray(sequences))
    drawn = np.asarray(toy.probabilities(_double(behavior_logits)))
  return [SampleGradients(drawn[sequences].prod(-1), sequences,
                          np.asarray(gradients), np.asarray(weights))
          for gradients, weights in results]


def expected_gradient(
    toy: Toy, spec: LossSpec, logits: Array, behavior_logits: Array, *,
    advantages: Array, old_logits: Array | None = None,
    reference_logits: Array | None = None, mass: float = 1.0,
    batch_size: int | None = None, **rows: Array) -> np.ndarray:
  """grad of E[loss total] / E[loss weight] under the policy that samples.

  That is the limit of the loss of an ever larger batch.

  Args:
    toy: the sequences.
    spec: the rule.
    logits: float[R, V], of the policy.
    behavior_logits: float[R, V], of the policy that samples.
    advantages: float[M], one a sequence.
    old_logits: float[R, V], where the rule needs them.
    reference_logits: float[R, V], where the rule needs them.
    mass: of the unnormalized sampling policy in the ratio: w = p / (mass q).
      For sequences of one token.
    batch_size: B, sequences that the rule sees at once; None takes 2 for a
      rule of whole batches and 1 for all others.
    **rows: rewards, group_mean, group_size of RuleInputs, [M] each or one.

  Returns:
    float64[R, V], the gradient of the loss (minus that of the objective).

  Raises:
    ValueError: if there are too many batches to list.
  """
  (samples,) = sample_gradients(
      toy, [spec], logits, behavior_logits, advantages=advantages,
      old_logits=old_logits, reference_logits=reference_logits, mass=mass,
      batch_size=batch_size, **rows)
  return samples.expected(toy)


def token_penalty_gradient(toy: Toy, spec: LossSpec, logits: Array,
                           behavior_logits: Array) -> np.ndarray:
  """grad of the expected sum over tokens of the penalty alone, without beta.

  To be held against the gradient of the divergence of whole sequences: with
  the forward KL they are equal, with the reverse KL they are not.
  """
  alone = LossSpec(bounds=None, gate=gates.Unclipped(), penalty=spec.penalty,
                   reduction=reduce.SequenceSum(1.0))
  return expected_gradient(
      toy, alone, logits, behavior_logits,
      advantages=np.zeros(len(toy.tokens))) / spec.penalty.beta


def _batches(toy, size) -> np.ndarray:
  """int[M^B, B], all batches of `size` sequences."""
  num = len(toy.tokens)
  if num ** size * size * toy.tokens.shape[1] * toy.num_tokens > _LARGEST:
    raise ValueError(
        f'Expected at most {_LARGEST} numbers in the gradients of all batches, '
        f'got {num} sequences in batches of {size}. Take a smaller toy or '
        f'batch_size=1.')
  return np.array(list(itertools.product(range(num), repeat=size)))


def _inputs(toy, spec, theta, at, index, mass, rows) -> rule.RuleInputs:
  """What a rule sees of the sequences `index`, from logits by position."""
  mask = jnp.asarray(toy.mask)[index]
  tokens = jnp.asarray(toy.tokens)[index][..., None]

  def logps(logits):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens, -1)
    return jnp.where(mask, chosen[..., 0], 0.0)

  get = lambda name: logps(at[name]) if name in at else None
  anchor = at.get('old' if spec.anchor == 'old' else 'behavior')
  other = {'anchor': anchor, 'reference': at.get('reference')}
  statistics = {
      need: distances.by_position(
          need.measure, theta, other[need.toward], need.top_k)
      for need in spec.needs}
  return rule.RuleInputs(
      logps=logps(theta), behavior_logps=get('behavior') + jnp.log(mass),
      old_logps=get('old'), reference_logps=get('reference'), mask=mask,
      entropy=distances.entropy(theta), statistics=statistics, **rows)


def _double(values):
  return jnp.asarray(values, jnp.float64)
