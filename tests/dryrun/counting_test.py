"""FLOPs and bytes by arithmetic, against the compiler and by hand."""
import dataclasses

import jax
import jax.numpy as jnp
import pytest

from configs import default
from rlclip import config as config_lib
from rlclip.dryrun import chips, counting, memory
from rlclip.dryrun import plan as plan_lib
from rlclip.models import config as model_config
from rlclip.models import transformer

ARCHITECTURE = model_config.ModelConfig(
    'qwen3', vocab_size=512, hidden_size=256, num_layers=1, num_heads=8,
    num_kv_heads=4, head_dim=32, intermediate_size=768, qk_norm=True,
    max_positions=4096)


def make_plan(topology='v5e:2x2', architecture=ARCHITECTURE, **settings):
  config = default.get_config()
  config.update_from_flattened_dict({
      'mesh.data': 1, 'mesh.fsdp': -1,
      **{key.replace('__', '.'): value for key, value in settings.items()}})
  return plan_lib.make(
      config_lib.resolve(config), architecture, chips.parse(topology))


def test_a_layers_flops_are_the_compilers():
  # Unscanned, as the compiler counts a loop's body once.
  rows, length = 4, 128
  model = transformer.make(ARCHITECTURE, decoding=True)
  params = jax.eval_shape(
      lambda key: transformer.decoding_params(
          ARCHITECTURE, transformer.make(ARCHITECTURE).init(key)),
      jax.random.key(0))
  ints = jax.ShapeDtypeStruct((rows, length), jnp.int32)
  forward = lambda p, t, x: model.apply(p, t, x)[0]
  compiled = jax.jit(forward).lower(params, ints, ints).compile()
  own = counting.layer_flops(
      ARCHITECTURE, rows * length, rows * length * length)
  # Norms, rotation and softmax besides.
  assert 1.0 < compiled.cost_analysis()['flops'] / own < 1.06


def test_the_heads_flops_are_the_compilers():
  model = transformer.make(ARCHITECTURE)
  params = jax.eval_shape(model.init, jax.random.key(0))
  hidden = jax.ShapeDtypeStruct((64, 256), jnp.float32)
  compiled = jax.jit(model.unembed).lower(params, hidden).compile()
  assert compiled.cost_analysis()['flops'] == pytest.approx(
      counting.head_flops(ARCHITECTURE, 64), rel=0.01)


def test_weights_are_the_models_matrices():
  # Besides them, an embedding, two norms a layer and one at the end, and the
  # norms of queries and keys.
  c = ARCHITECTURE
  assert c.num_params == counting.layer_weights(c) + (
      512 * 256 + 3 * 256 + 2 * 32)


def test_an_update_takes_three_times_a_score_and_its_logits_four():
  plan = make_plan(rollout__num_prompts=8, algorithm__beta=0.0,
                   algorithm__anchor='old')
  score, update = counting.phases(plan)[-2:]
  assert (score.name, update.name) == ('score', 'update')
  head = counting.head_flops(ARCHITECTURE, 2 * 8 * 64)  # 2 prompts a device
  assert update.flops == pytest.approx(3 * score.flops + head)
  assert update.model_flops == pytest.approx(3 * score.model_flops)
  again = make_plan(rollout__num_prompts=8, algorithm__beta=0.0,
                    algorithm__anchor='old', model__remat='layer')
  assert counting.phases(again)[-1].flops == pytest.approx(4 * score.flops)


def test_a_reference_is_one_more_forward_pass():
  with_one, without = (counting.phases(make_plan(
      rollout__num_prompts=8, algorithm__beta=beta))[-1]
      for beta in (0.04, 0.0))
  assert with_one.model_flops == pytest.approx(without.model_flops * 4 / 3)


def test_prompts_that_do_not_divide_are_computed_on_every_device():
  assert plan_lib.each(8, 4) == 2
  assert plan_lib.each(2, 4) == 2


def test_decoding_draws_every_token_of_a_step():
  plan = make_plan(rollout__num_prompts=8, rollout__num_slots=16)
  decode = counting.phases(plan)[1]
  assert decode.calls * decode.tokens == 8 * 8 * 64
  half = counting.phases(plan, 32.0)[1]
  assert half.calls * half.tokens == 8 * 8 * 32


def test_micro_batches_cut_activations_and_not_the_state():
  plan, cut = (make_plan(rollout__num_prompts=32, model__remat='layer',
                         learner__num_micro_batches=n) for n in (1, 4))
  assert memory.resident(plan) == memory.resident(cut)
  parts, cut_parts = memory.update(plan), memory.update(cut)
  assert cut_parts['activations'] == pytest.approx(parts['activations'] / 4)
  assert cut_parts['gradients'] == 2 * parts['gradients']  # sum and addend


def test_the_state_is_twelve_bytes_a_parameter_over_its_shards():
  found = memory.resident(make_plan(algorithm__beta=0.0))
  held = found['parameters'] + found['optimizer moments']
  assert held == 12 * ARCHITECTURE.num_params / 4
  assert memory.resident(make_plan())['reference'] == (
      ARCHITECTURE.num_params)  # four bytes, four shards


def test_a_cache_holds_keys_and_values_of_every_layer():
  c = dataclasses.replace(ARCHITECTURE, num_layers=3)
  assert counting.cache_elements(c) == 2 * 3 * 4 * 32


@pytest.mark.parametrize('topology, message', [
    ('v9:2x2', 'Unknown chip'), ('v5e:8', '2 sizes'), ('v5p:4x4', '3 sizes'),
    ('h100:2x4', '1 size,'), ('v5e:0x4', 'sizes')])
def test_a_slice_that_is_none_is_refused(topology, message):
  with pytest.raises(ValueError, match=message):
    chips.parse(topology)


def test_a_mesh_that_does_not_use_the_devices_is_refused_with_one_that_does():
  with pytest.raises(ValueError, match='data=1, fsdp=2, tensor=2'):
    make_plan(mesh__fsdp=3, mesh__tensor=2)


def test_a_sequence_beyond_the_models_positions_is_refused():
  short = dataclasses.replace(ARCHITECTURE, max_positions=100)
  with pytest.raises(ValueError, match='128 is more than the 100'):
    make_plan(architecture=short)


def test_a_sampler_stays_within_its_process():
  plan = make_plan('v5e:4x4', mesh__fsdp=8, mesh__tensor=2,
                   rollout__num_slots=64)
  assert plan.host_mesh == (1, 2, 2)
  assert (plan.num_processes, plan.num_slots) == (4, 16)
