"""The jitted, sharded update step that every rule shares, and scoring."""
import functools
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import optax

from rlclip import lora, optimizers, partitioning
from rlclip.losses import dials as dials_lib
from rlclip.models import scoring, transformer
from rlclip.types import (Batch, LossOutput, Mean, Params, Statistic,
                          TokenStats, TrainState)

Loss = Callable[..., LossOutput]  # see rlclip.losses.make


class Learner(NamedTuple):
  """Pure functions over a TrainState, compiled once for their shapes.

  Attributes:
    init: model weights -> TrainState, laid on the mesh. What trains is a
      copy.
    update: (state, reference's weights or None, batch, anchor's weights or
      None) -> (state, metrics). What trains of the state is donated. The
      anchor is the policy at the batch's weights, for a loss that asks for
      its distributions. Metrics are a dict of Mean. Where a gradient is not
      finite the state stays as it was, and the metric `grad_nonfinite` is 1.
    score: (model weights, batch) -> TokenStats [N, C] at the sampling
      temperature.
    weights: the state's parameters -> model weights; themselves, where all
      of them train.
    frozen: the state's parameters -> the weights among them that never
      change, the initial policy; None where all of them train.
    shardings: of the TrainState.
    axes: logical axes of the state's parameters.
  """
  init: Callable[[Params], TrainState]
  update: Callable[..., tuple[TrainState, dict[str, Mean]]]
  score: Callable[[Params, Batch], TokenStats]
  weights: Callable[[Params], Params]
  frozen: Callable[[Params], Params | None]
  shardings: TrainState
  axes: Params


def make(model: transformer.Model, loss: Loss,
         optimizer: optax.GradientTransformation,
         partitioner: partitioning.Partitioner, *, temperature: float,
         num_micro_batches: int = 1, chunk: int = 512,
         statistics: Sequence[Statistic] = (),
         dials: Mapping[str, Any] | None = None,
         trainable: lora.Trainable = lora.FULL) -> Learner:
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
    trainable: which weights train.

  Returns:
    The Learner.
  """
  dials = dials or {}
  score = functools.partial(
      _score, model, temperature=temperature, chunk=chunk)
  shardings, axes = _layout(model, optimizer, partitioner, dials, trainable)

  def init(weights):
    params = trainable.begin(weights)
    trained, _ = trainable.split(params)
    return TrainState(jnp.zeros((), jnp.int32), params,
                      optimizer.init(trained), dials_lib.initial(dials))

  def update(state, reference, batch, anchor=None, frozen=None):
    # Every micro-batch spreads over all devices: cut rows, then constrain.
    cut = lambda x: partitioner.constrain(
        x.reshape(num_micro_batches, -1, *x.shape[1:]),
        (None, 'batch') + (None,) * (x.ndim - 1))
    others = {name: params for name, params in
              (('reference', reference), ('anchor', anchor))
              if params is not None}
    factors = {'factors': state.factors} if dials else {}
    own_loss = functools.partial(loss, **factors)
    grads, out = _accumulate(
        lambda trained, *args: score(
            trainable.merge(trained, frozen), *args, statistics=statistics),
        own_loss, state.params, others, jax.tree.map(cut, batch))
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
  trained, _ = trainable.split(shardings.params)
  return Learner(
      init=jax.jit(init, out_shardings=shardings),
      update=_around_frozen(trainable, jax.jit(
          update, donate_argnums=0,
          # Without out_shardings the second step would compile anew.
          out_shardings=(shardings._replace(params=trained), replicated))),
      # Whole on every process, whose host reads all rows.
      score=jax.jit(lambda weights, batch: score(weights, {}, batch)[0],
                    out_shardings=replicated),
      weights=_merged(trainable, model, partitioner),
      frozen=lambda params: trainable.split(params)[1],
      shardings=shardings, axes=axes)


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


def _around_frozen(trainable, update):
  """Keeps what is frozen out of the donation, so that others may hold it."""
  if trainable is lora.FULL:
    return update

  def around(state, reference, batch, anchor=None):
    trained, frozen = trainable.split(state.params)
    state, metrics = update(
        state._replace(params=trained), reference, batch, anchor, frozen)
    return state._replace(
        params=trainable.join(state.params, frozen)), metrics
  return around


def _merged(trainable, model, partitioner):
  if trainable is lora.FULL:
    return lambda params: params
  return jax.jit(
      lambda params: trainable.merge(*trainable.split(params)),
      out_shardings=partitioner.tree_shardings(
          model.axes, jax.eval_shape(model.init, jax.random.key(0))))


def _layout(model, optimizer, partitioner, dials, trainable):
  """Shardings of the state, and logical axes of its parameters.

  Moments lie where their parameters lie; counters are on every device.
  """
  axes = trainable.axes(model.axes)
  abstract = jax.eval_shape(
      lambda key: trainable.begin(model.init(key)), jax.random.key(0))
  params = partitioner.tree_shardings(axes, abstract)
  replicated = partitioner.replicated()
  trained = lambda tree: trainable.split(tree)[0]
  opt_state = optimizers.state_like(
      optimizer, trained(abstract), trained(params), replicated)
  return TrainState(replicated, params, opt_state,
                    {role: replicated for role in dials}), axes
