"""Bytes a device, by arithmetic, before anything is compiled.

What a program needs besides its arguments is the compiler's secret until it
has compiled: the parts below are those that dominate, each as it would be if
nothing else took room.
"""
from rlclip.dryrun import counting
from rlclip.dryrun import plan as plan_lib

_F32 = 4


def resident(plan: plan_lib.Plan) -> dict[str, float]:
  """What lies on a device throughout a run."""
  e, c = plan.experiment, plan.architecture
  _, fsdp, tensor = plan.mesh
  data, host_fsdp, host_tensor = plan.host_mesh
  params, spec, sizes = c.num_params, e.loss_spec, plan.slot_sizes()
  shards = fsdp * tensor
  found = {
      'parameters': _F32 * params / shards,
      'optimizer moments': 2 * _F32 * params / shards,
      'reference': spec.needs_reference * _F32 * params / shards,
      'anchor policy': spec.needs_anchor_policy * _F32 * params / shards,
  }
  if e.sampler.kind == 'local':
    kv = plan.itemsize * counting.cache_elements(c) / (
        host_tensor if c.num_kv_heads % host_tensor == 0 else 1)
    rows = plan_lib.each(sizes.num_slots, data * host_fsdp)
    found |= {
        'sampler weights': plan.itemsize * params / (host_fsdp * host_tensor),
        "completions' cache": kv * rows * sizes.capacity,
        "prompts' cache": kv * sizes.num_prefixes * sizes.prefix_capacity,
    }
  return {name: size for name, size in found.items() if size}


def update(plan: plan_lib.Plan) -> dict[str, float]:
  """What an update takes besides, at its peak."""
  e, c, r = plan.experiment, plan.architecture, plan.experiment.rollout
  _, fsdp, tensor = plan.mesh
  shards, size = fsdp * tensor, plan.itemsize
  prompts, rows = plan.own_sequences(plan.micro_prompts)
  tokens = prompts * r.prompt_length + rows * r.completion_length
  heads, kv = c.num_heads * c.head_dim, 2 * c.num_kv_heads * c.head_dim
  # In one layer: products' results are float32 first.
  inside = (_F32 + size) * (
      3 * c.intermediate_size + 2 * heads + 2 * kv) / tensor
  saved = size * c.hidden_size + (0 if plan.is_grouped else size * kv / tensor)
  products = size * (
      2 * c.intermediate_size + heads + kv + c.hidden_size) / tensor
  layers = {
      'layer': saved * c.num_layers + inside,
      'dots': (saved + products) * c.num_layers + inside,
      'none': (saved + inside) * c.num_layers}[e.model.remat]
  score_rows = rows * c.num_heads / tensor * r.completion_length
  scores = 0.0
  if not plan.is_grouped:
    width = r.completion_length + r.prompt_length
    # Scores, their exponentials and the gradient of either.
    scores = score_rows * width * (2 * _F32 + size)
    scores *= c.num_layers if e.model.remat == 'none' else 1
  chunk = max(e.learner.logits_chunk, plan.micro_rows)
  vocab = c.vocab_size / tensor
  micros = 2 if e.learner.num_micro_batches > 1 else 1
  return {
      'gradients': micros * _F32 * c.num_params / shards,
      'activations': tokens * layers,
      'attention scores': scores,
      'logits': 3 * _F32 * vocab * chunk / plan.batch_shards,
      'gathered weights': (size + _F32) * c.hidden_size * vocab
                          + 2 * size * counting.layer_weights(c) / tensor,
  }


def total(plan: plan_lib.Plan) -> float:
  """Of a device, in the update, which takes most."""
  return sum(resident(plan).values()) + sum(update(plan).values())
