r"""Supervised learning alone: SmolLM2 on GSM8K's own solutions.

The same keys put a warm start before RL, by a num_steps above 0. Any file of
prompts and completions goes in their place:

python -m experiments.train --config=configs/sft_gsm8k.py --workdir=runs/sft \
  --config.warm_start.task=table --config.task.data_dir=DIR

with `files`, `columns` and `completion` in config.warm_start.options. Needs
`make smollm2` and RLCLIP_DATA. No result yet.
"""
from configs import default


def get_config():
  """Returns 400 updates of 16 solutions, evaluated on GSM8K's test problems."""
  config = default.get_config()
  config.num_steps = 0  # of RL
  config.model.path = '.cache/smollm2'
  config.task.name = 'gsm8k'
  config.warm_start.num_steps = 400
  config.warm_start.batch_size = 16
  config.warm_start.learning_rate = 1e-5
  config.rollout.prompt_length = 320
  config.rollout.completion_length = 320
  config.rollout.num_slots = 50
  config.learner.logits_chunk = 1024
  config.evaluation.num_problems = 100
  return config
