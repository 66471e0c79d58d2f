r"""ATR-GRPO (arXiv 2602.05494): a KL3 trust region on two Qwen3 models.

What is known of its experiments is a summary: models, benchmarks, Pass@8 and
Mean@8, "traditional ratio clipping and other clip strategies". Everything
else here is ours, the budget delta first of all.

python -m experiments.train --config=configs/papers/atr_grpo.py:qwen3-1.7b \
  --workdir=runs/atr_grpo
"""
from configs.papers import variants

MODELS = {  # [SEED]
    'qwen3-1.7b': {'model.path': 'Qwen/Qwen3-1.7B'},
    'qwen3-8b': {'model.path': 'Qwen/Qwen3-8B'},
}

RULES = {
    # delta: ours, as wide as eps = 0.2 to second order.
    'atr_grpo': {'algorithm.name': 'atr_grpo', 'algorithm.delta': 0.02},
    # "Ratio clipping" [SEED]; its width and the missing penalty are ours.
    'ratio': {'algorithm.name': 'grpo', 'algorithm.beta': 0.0},
    # "Other clip strategies" [SEED]; which ones is ours.
    'clip_higher': {'algorithm.name': 'dapo',
                    'algorithm.reduction': 'sequence_mean'},
    'abc_grpo': {'algorithm.name': 'abc_grpo',
                 'algorithm.advantage': 'group_zscore'},
}

_OURS = {
    'num_steps': 400,
    'task.name': 'deepscaler',
    'model.dtype': 'bfloat16',
    'model.remat': 'layer',
    'rollout.num_prompts': 128,
    'rollout.group_size': 8,  # so that Pass@8 [SEED] is of one group
    'rollout.prompt_length': 1024,
    'rollout.completion_length': 4096,
    'rollout.num_slots': 512,
    'learner.num_mini_batches': 4,
    'learner.logits_chunk': 16384,
    'optimizer.learning_rate': 1e-6,
    'optimizer.warmup_steps': 10,
    'mesh.data': 1,
    'mesh.fsdp': -1,
    'evaluation.every': 20,
    'evaluation.num_problems': 0,
    'checkpoint.every': 20,
}

_KNOWN = {
    'evaluation.tasks': ('aime24', 'amc23'),  # [SEED]; others possible
    'evaluation.num_samples': 8,  # [SEED] Pass@8, Mean@8
}


def get_config(variant=''):
  """A model and a rule, as 'qwen3-8b,atr_grpo'."""
  chosen = variants.choose(variant, model=MODELS, rule=RULES)
  return variants.config(
      _OURS, _KNOWN, MODELS[chosen['model']], RULES[chosen['rule']])
