"""FLOPs and bytes of each phase of an RL step, by arithmetic.

A product of [m, k] and [k, n] counts 2 m k n FLOPs; norms, rotations, softmax
and the optimizer's elementwise work are left out (some percent).
"""
import dataclasses

from rlclip.dryrun import plan as plan_lib
from rlclip.models import config as model_config


@dataclasses.dataclass(frozen=True)
class Phase:
  """One phase of an RL step, a call of it on one device.

  Attributes:
    name: 'prefill', 'decode', 'score' or 'update'.
    calls: a step.
    flops: that the device computes, what it computes twice or for nothing
      included.
    model_flops: of these, what no program for this batch could do without: no
      recomputation, causal halves alone. All devices together divide it.
    hbm: bytes from and to memory, at least.
    link: bytes sent to other devices, at least, by arithmetic.
    tokens: of completions, that a call draws or trains on, all devices.
  """
  name: str
  calls: float
  flops: float
  model_flops: float
  hbm: float
  link: float
  tokens: float


def layer_flops(config: model_config.ModelConfig, tokens: float,
                pairs: float) -> float:
  """Of all layers' products, forward.

  Args:
    config: the model's.
    tokens: that go through.
    pairs: of a query and a key that meet, per layer and head.
  """
  c = config
  attention = 4 * c.num_heads * c.head_dim * pairs  # scores, weighted values
  return c.num_layers * (2 * layer_weights(c) * tokens + attention)


def layer_weights(config: model_config.ModelConfig) -> int:
  """Elements of one layer's matrices."""
  c = config
  heads, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
  return c.hidden_size * (2 * heads + 2 * kv + 3 * c.intermediate_size)


def head_flops(config: model_config.ModelConfig, tokens: float) -> float:
  """Of the logits, forward."""
  return 2.0 * config.hidden_size * config.vocab_size * tokens


def phases(plan: plan_lib.Plan, mean_length: float = 0) -> list[Phase]:
  """The phases of one RL step, in their order.

  Args:
    plan: the config on its slice.
    mean_length: of completions in tokens, for what depends on it; 0 takes
      the longest, so that times are bounds for full completions.
  """
  length = mean_length or plan.experiment.rollout.completion_length
  found = [_prefill(plan), _decode(plan, length)]
  if plan.experiment.loss_spec.needs_old:
    found.append(_learn(plan, 'score'))
  found.append(_learn(plan, 'update'))
  return found


def _learn(plan, name) -> Phase:
  """Scoring, forward alone; or an update, micro-batches and all."""
  e, c, r = plan.experiment, plan.architecture, plan.experiment.rollout
  data, fsdp, tensor = plan.mesh
  update, micros = name == 'update', e.learner.num_micro_batches
  prompts, rows, repeats = plan.micro_prompts, plan.micro_rows, micros
  if not update:  # the whole batch of a step at once
    prompts, rows, repeats = r.num_prompts, e.num_rows, 1
  # Whole squares where all scores are held, half of them where a kernel
  # leaves out what does not meet.
  pairs = lambda p, n, part: (
      p * r.prompt_length ** 2 * part + n * r.completion_length * (
          r.prompt_length + r.completion_length * part))
  own_prompts, own_rows = plan.own_sequences(prompts)
  tokens = (own_prompts * r.prompt_length + own_rows * r.completion_length)
  own_pairs = pairs(own_prompts, own_rows, 0.5 if plan.is_grouped else 1)
  layers = layer_flops(c, tokens, own_pairs) / tensor
  head = head_flops(c, own_rows * r.completion_length) / tensor
  all_tokens = prompts * r.prompt_length + rows * r.completion_length
  model = (layer_flops(c, all_tokens, pairs(prompts, rows, 0.5))
           + head_flops(c, rows * r.completion_length))
  again = e.model.remat == 'layer'
  others = _num_others(e) if update else 0
  # Backward takes two products for each; logits are always computed again.
  flops = (layers * ((3 + again) + others) + head * (4 + others)
           if update else layers + head)
  passes = (3 + again + others) if update else 1
  size, weights = plan.itemsize, c.num_params / tensor
  hbm = passes * size * (weights + tokens * c.num_layers * _traffic(c) / tensor)
  hbm += passes * 8 * own_rows * r.completion_length * c.vocab_size / tensor
  link = _collectives(plan, tokens, passes, update)
  calls = e.updates_per_step if update else 1
  model *= (3 + others) if update else 1
  optimizer = 7 * 4 * weights / fsdp if update else 0
  return Phase(name, calls, repeats * flops, repeats * model,
               repeats * hbm + optimizer, repeats * link,
               repeats * rows * r.completion_length)


def _num_others(experiment) -> int:
  """Policies that an update scores besides its own."""
  spec = experiment.loss_spec
  return spec.needs_reference + spec.needs_anchor_policy


def _traffic(c) -> int:
  """Elements that one layer's products read and write for a token."""
  heads, kv = c.num_heads * c.head_dim, 2 * c.num_kv_heads * c.head_dim
  return (4 * c.hidden_size + 2 * heads + kv + 3 * c.intermediate_size
          + 2 * c.hidden_size)


def _collectives(plan, tokens, passes, update) -> float:
  """Bytes that a device sends in one micro-batch, in the best case."""
  data, fsdp, tensor = plan.mesh
  c, size = plan.architecture, plan.itemsize
  ring = lambda n: (n - 1) / n
  weights = c.num_params / tensor
  gathers = min(passes, 2)  # once forward, once backward
  sent = gathers * size * weights * ring(fsdp)
  sums = 4 if update else 2  # of activations, a layer
  sent += (2 * sums * c.num_layers * tokens * c.hidden_size * size
           * ring(tensor))
  if update:
    sent += 4 * weights * ring(fsdp) + 2 * 4 * weights / fsdp * ring(data)
  return sent


def _prefill(plan) -> Phase:
  c, r = plan.architecture, plan.experiment.rollout
  chunk = min(plan_lib.CHUNK, r.prompt_length)
  own = -(-r.num_prompts // plan.num_processes)
  calls = -(-own // plan_lib.PROMPTS) * -(-r.prompt_length // chunk)
  data, fsdp, tensor = plan.host_mesh
  rows = plan_lib.each(plan_lib.PROMPTS, data * fsdp)
  pairs = rows * chunk * (chunk + r.prompt_length / 2)
  needed = plan_lib.PROMPTS * chunk * (chunk + r.prompt_length) / 2
  weights = c.num_params / tensor
  return Phase(
      'prefill', calls, layer_flops(c, rows * chunk, pairs) / tensor,
      plan.num_processes * layer_flops(c, plan_lib.PROMPTS * chunk, needed),
      plan.itemsize * (
          weights + rows * chunk * c.num_layers * _traffic(c) / tensor),
      plan.itemsize * weights * (fsdp - 1) / fsdp, 0.0)


def _decode(plan, length) -> Phase:
  """Drawing one token for every slot; slots that are never empty."""
  e, c, r = plan.experiment, plan.architecture, plan.experiment.rollout
  data, fsdp, tensor = plan.host_mesh
  own_rows = -(-e.num_rows // plan.num_processes)
  slots = min(plan.num_slots, own_rows)
  calls = max(own_rows / slots, 1.0) * length
  rows = plan_lib.each(slots, data * fsdp)
  reach = r.prompt_length + length / 2
  flops = (layer_flops(c, rows, rows * reach) + head_flops(c, rows)) / tensor
  model = (layer_flops(c, slots, slots * reach) + head_flops(c, slots))
  weights = c.num_params / tensor
  # A group's prompt is read once for all its rows.
  cached = rows * length / 2 + rows / r.group_size * r.prompt_length
  return Phase(
      'decode', calls, flops, plan.num_processes * model,
      plan.itemsize * (weights + cached * cache_elements(c) / tensor),
      plan.itemsize * weights * (fsdp - 1) / fsdp,
      plan.num_processes * slots)


def cache_elements(config: model_config.ModelConfig) -> int:
  """Elements of one token's keys and values, all layers."""
  return 2 * config.num_layers * config.num_kv_heads * config.head_dim
