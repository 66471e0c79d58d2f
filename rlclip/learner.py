"""The jitted, sharded update step that every rule shares, and scoring."""
import functools
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import optax

from rlclip import partitioning
from rlclip.losses import dials as dials_lib
from rlclip.models import scoring, transformer
from rlclip.types import (Batch, LossOutput, Mean, Params, Statistic,
                          TokenStats, TrainState)

Loss = Callable[..., LossOutput]  # see rlclip.losses.make


class Learner(NamedTuple):
  """Pure functions over a TrainState, compiled once for their shapes.

  Attributes:
    init: params -> TrainState, a copy, laid on the mesh.
    update: (state, reference params or None, batch, anchor params or None)
      -> (state, metrics). The state is donated. The anchor is the policy at
      the batch's weights, for a loss that asks for its distributions. Metrics
      are a dict of Mean. Where a gradient is not finite the state stays as it
      was, and the metric `grad_nonfinite` is 1.
    score: (params, batch) -> TokenStats [N, C] at the sampling temperature.
    shardings: of the TrainState.
  """
  init: Callable[[Params], TrainState]
  update: Callable[..., tuple[TrainState, dict[str, Mean]]]
  score: Callable[[Params, Batch], TokenStats]
  shardings: TrainState


def make(model: transformer.Model, loss: Loss,
         optimizer: optax.GradientTransformation,
         partitioner: partitioning.Partitioner, *, temperature: float,
         num_micro_batches: int = 1, chunk: int = 512,
         statistics: Sequence[Statistic] = (),
         dials: Mapping[str, Any] | None = None) -> Learner:
  """Builds the learner of one model, one loss and one optimizer on one mesh.

  Args:
    model: layers scanned, constrained to the same mesh.
    loss: a point of the space of rules, or any function of its signature.
    optimizer: takes the gradient of the loss's mean.
    partitioner: mesh and axis rules; policy and reference are laid alike.
    temperature: that of the sampler.
    num_micro_batches: parts into which a batch's prompts are cut, one after
      another; gradients and totals are summed, and divided once.
    chunk: tokens whose logits exist at once.
    statistics: of whole distributions, that the loss asks for.
    dials: of the loss, by role; their factors are part of the state.

  Returns:
    The Learner.
  """
  dials = dials or {}
  score = functools.partial(
      _score, model, temperature=temperature, chunk=chunk)
  shardings = _state_shardings(model, optimizer, partitioner, dials)

  def init(params):
    # A copy: update() donates, and the caller's tree may be the reference.
    params = jax.tree.map(jnp.copy, params)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params),
                      dials_lib.initial(dials))

  def update(state, reference, batch, anchor=None):
    # Every micro-batch spreads over all devices: cut rows, then constrain.
    cut = lambda x: partitioner.constrain(
        x.reshape(num_micro_batches, -1, *x.shape[1:]),
        (None, 'batch') + (None,) * (x.ndim - 1))
    others = {name: params for name, params in
              (('reference', reference), ('anchor', anchor))
              if params is not None}
    if dials:
      own_loss = functools.partial(loss, factors=state.factors)
    else:
      own_loss = loss
    grads, out = _accumulate(
        functools.partial(score, statistics=statistics), own_loss,
        state.params, others, jax.tree.map(cut, batch))
    grads = jax.tree.map(
        lambda g: g / jnp.maximum(out.loss.weight, 1e-30), grads)
    norm = optax.tree.norm(grads)
    finite = jnp.isfinite(norm)
    # A poisoned gradient leaves the state alone; the host decides what next.
    one = lambda x: Mean(jnp.float32(x), jnp.float32(1))
    metrics = {**out.metrics, 'loss': out.loss, 'grad_norm': one(norm),
               'grad_nonfinite': one(~finite), **{
                   f'dial/{role}': one(state.factors[role]) for role in dials}}
    state = jax.lax.cond(
        finite, lambda s: _apply(optimizer, dials, s, grads, out.metrics),
        lambda s: s, state)
    return state, metrics

  replicated = partitioner.replicated()
  return Learner(
      init=jax.jit(init, out_shardings=shardings),
      # Without out_shardings the second step would compile anew.
      update=jax.jit(update, donate_argnums=0,
                     out_shardings=(shardings, replicated)),
      # Whole on every process, whose host reads all rows.
      score=jax.jit(lambda params, batch: score(params, {}, batch)[0],
                    out_shardings=replicated),
      shardings=shardings)


def optimizer_from(learning_rate: float, *, warmup_steps: int = 0,
                   decay_steps: int = 0, schedule: str = 'constant',
                   b1: float = 0.9, b2: float = 0.999, epsilon: float = 1e-8,
                   weight_decay: float = 0.0, max_grad_norm: float = 0.0):
  """AdamW behind gradient clipping, with a warm-up and a schedule.

  Args:
    learning_rate: at the schedule's peak.
    warmup_steps: linear from 0, in optimizer updates.
    decay_steps: updates after which cosine or linear reaches 0.
    schedule: 'constant', 'cosine' or 'linear', after the warm-up.
    b1: decay of the first moment.
    b2: decay of the second moment.
    epsilon: added to the root of the second moment.
    weight_decay: decoupled, times the learning rate; matrices only.
    max_grad_norm: global norm to clip to; 0 for none.

  Returns:
    An optax.GradientTransformation.

  Raises:
    ValueError: on an unknown schedule, or a decay that ends in the warm-up.
  """
  rate = rate_schedule(learning_rate, warmup_steps, decay_steps, schedule)
  clip = optax.clip_by_global_norm(max_grad_norm)
  return optax.chain(
      clip if max_grad_norm else optax.identity(),
      optax.adamw(rate, b1=b1, b2=b2, eps=epsilon, weight_decay=weight_decay,
                  mask=_is_matrix))


def rate_schedule(learning_rate: float, warmup_steps: int, decay_steps: int,
                  schedule: str) -> optax.Schedule:
  """The learning rate by update, counted from 0; see optimizer_from."""
  if schedule not in ('constant', 'cosine', 'linear'):
    raise ValueError(
        f"schedule must be 'constant', 'cosine' or 'linear', got {schedule!r}.")
  if schedule != 'constant' and decay_steps <= warmup_steps:
    raise ValueError(
        f'schedule {schedule!r} needs decay_steps > warmup_steps, got '
        f'{decay_steps} and {warmup_steps}.')
  span = decay_steps - warmup_steps
  after = {
      'constant': lambda: optax.constant_schedule(learning_rate),
      'cosine': lambda: optax.cosine_decay_schedule(learning_rate, span),
      'linear': lambda: optax.linear_schedule(learning_rate, 0.0, span),
  }[schedule]()
  # From 1 / warmup_steps, so that the first update is not lost.
  warmup = lambda step: learning_rate * (step + 1) / max(warmup_steps, 1)
  return optax.join_schedules([warmup, after], [warmup_steps])


def supervised_loss(policy: TokenStats, reference: TokenStats | None,
                    batch: Batch) -> LossOutput:
  """Mean negative log-likelihood a completion token, for the warm start."""
  del reference
  mask = batch.mask
  count = jnp.sum(mask, dtype=jnp.float32)
  total = lambda x: Mean(jnp.sum(jnp.where(mask, x, 0.0)), count)
  return LossOutput(
      total(-policy.logps),
      {'entropy': total(jax.lax.stop_gradient(policy.entropy))})


def _score(model, params, others, batch, statistics=(), *, temperature, chunk):
  texts = scoring.Texts(
      batch.prompts, batch.prompt_lengths, batch.completions,
      batch.packing)
  return scoring.score_against(
      model, params, others, texts, statistics, temperature=temperature,
      chunk=chunk)


def _accumulate(score, loss, params, others, micro_batches):
  """Sums gradients of the loss's total, and all totals, over micro-batches."""
  def total(params, batch):
    policy, held = score(params, others, batch)
    out = loss(policy, held.get('reference'), batch)
    return out.loss.total, out

  def step(batch):
    (_, out), grads = jax.value_and_grad(total, has_aux=True)(params, batch)
    return grads, out

  first = jax.tree.map(lambda x: x[0], micro_batches)
  if jax.tree.leaves(micro_batches)[0].shape[0] == 1:
    return step(first)
  zeros = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step, first))
  add = lambda sums, batch: (jax.tree.map(jnp.add, sums, step(batch)), None)
  return jax.lax.scan(add, zeros, micro_batches)[0]


def _apply(optimizer, dials, state, grads, metrics):
  updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
  params = optax.apply_updates(state.params, updates)
  step = state.step + 1
  factors = dials_lib.moved(dials, state.factors, step, metrics)
  return TrainState(step, params, opt_state, factors)


def _state_shardings(model, optimizer, partitioner, dials) -> TrainState:
  """Moments lie where their parameters lie; counters are on every device."""
  abstract = jax.eval_shape(model.init, jax.random.key(0))
  params = partitioner.tree_shardings(model.axes, abstract)
  replicated = partitioner.replicated()
  opt_state = optax.tree.map_params(
      optimizer, lambda _, sharding: sharding,
      jax.eval_shape(optimizer.init, abstract), params,
      transform_non_params=lambda _: replicated)
  return TrainState(replicated, params, opt_state,
                    {role: replicated for role in dials})


def _is_matrix(params: Params) -> Any:
  """Weight decay leaves norms and biases alone (stacked ones are 2-D)."""
  return jax.tree_util.tree_map_with_path(
      lambda path, _: path[-1].key not in ('scale', 'bias'), params)
