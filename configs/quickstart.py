r"""A small transformer learns sums of several operands, in minutes on 2 cores.

Warm-started on demonstrations that slip now and then, so that it knows how to
work a sum out and gets most of them wrong; then trained by ATR-GRPO, with
several updates a rollout batch, so that the trust region binds.

python -m experiments.train --config=configs/quickstart.py \
  --workdir=runs/quickstart
"""
from configs import default


def get_config():
  """Returns 150 steps; docs/results/quickstart.md has three seeds."""
  config = default.get_config()
  config.num_steps = 150
  config.model.architecture.hidden_size = 96
  config.model.architecture.num_layers = 3
  config.model.architecture.num_heads = 3
  config.model.architecture.num_kv_heads = 3
  config.model.architecture.intermediate_size = 384
  config.model.architecture.max_positions = 64
  config.task.name = 'arithmetic'
  config.task.options = {'num_operands': 3, 'num_digits': 2}
  config.warm_start.num_steps = 2600
  config.warm_start.batch_size = 32
  config.warm_start.learning_rate = 3e-3
  config.warm_start.slip_rate = 0.15
  config.algorithm.name = 'atr_grpo'
  config.rollout.num_prompts = 64
  config.rollout.group_size = 8
  config.rollout.prompt_length = 9
  config.rollout.completion_length = 20
  config.learner.num_mini_batches = 8
  config.optimizer.learning_rate = 2e-4
  config.evaluation.every = 20
  config.evaluation.num_problems = 512
  config.checkpoint.every = 20
  return config
