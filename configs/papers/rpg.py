r"""RPG (arXiv 2505.17508): eight regularized policy gradients, four baselines.

Settings are the paper's [PDF] where it has them, else its scripts' [CODE],
which are of Qwen2.5-7B models at the 2K context only. Its rewards are 1 and -1
and ours 1 and 0, so that everything in units of reward is half of theirs: beta
and the overlong penalty, and the limit of the gradient's norm where advantages
are not normalized. The REINFORCE forms run the paper's Algorithm 2, which its
released scripts do not.

python -m experiments.train --workdir=runs/rpg \
  --config=configs/papers/rpg.py:qwen3-4b,rpg_ufkl,4k
"""
from configs.papers import variants

MODELS = {  # [PDF]
    'qwen3-4b': {'model.path': 'Qwen/Qwen3-4B'},
    'qwen2.5-7b': {'model.path': 'Qwen/Qwen2.5-7B-Instruct'},
}

# Prompt and completion together 4,096 and 8,192 [PDF]; the halves are the
# scripts' for 2k [CODE], ours for 4k. Of 8k only the name is known [PDF].
CONTEXTS = {
    '2k': {'rollout.prompt_length': 2048, 'rollout.completion_length': 2048},
    '4k': {'rollout.prompt_length': 4096, 'rollout.completion_length': 4096},
    '8k': {'rollout.prompt_length': 2048, 'rollout.completion_length': 8192},
}

# Dynamic sampling and the overlong penalty [CODE]: as many as 20 batches of
# prompts, the last 512 tokens.
_SHAPED = {'rollout.max_refills': 19, 'reward.overlong_buffer': 512,
           'reward.overlong_factor': 0.5}
# beta 1e-4 [PDF], the norm 1.0 [PDF], both for rewards twice as large. Widths
# 0.2 and 0.28 [PDF] and the cap 10 [CODE] are those of the algorithms.
_RPG = {**_SHAPED, 'algorithm.beta': 5e-5, 'optimizer.max_grad_norm': 0.5}
# [CODE]; its k1 as a loss has a coefficient of 1e-4 to the sampler. Beside the
# normalized advantages it is the same for any rewards. No dynamic sampling and
# no overlong penalty: ours, the scripts were not told apart.
_REINFORCE_PP = {
    'algorithm.name': 'dual_clip_ppo', 'algorithm.eps_low': 0.2,
    'algorithm.eps_high': 0.28, 'algorithm.cap': 10.0,
    'algorithm.penalty': 'reverse_kl', 'algorithm.estimator': 'unweighted_k1',
    'algorithm.toward': 'anchor', 'algorithm.beta': 1e-4}

RULES = {
    **{name: {'algorithm.name': name, **_RPG} for name in (
        'rpg_ufkl', 'rpg_urkl', 'rpg_reinforce_ufkl', 'rpg_reinforce_urkl',
        'rpg_fkl', 'rpg_rkl', 'rpg_reinforce_fkl', 'rpg_reinforce_rkl')},
    'dapo': {'algorithm.name': 'dapo', **_SHAPED},  # [PDF]
    # Widths as in section 5 [PDF]; 0.1 in its appendix H. The rest [CODE].
    'grpo': {'algorithm.name': 'grpo', 'algorithm.eps_low': 0.2,
             'algorithm.eps_high': 0.2, 'algorithm.beta': 1e-3,
             'algorithm.reduction': 'token_mean'},
    'reinforce_pp': {**_REINFORCE_PP, 'algorithm.advantage': 'batch'},
    'reinforce_pp_baseline': {
        **_REINFORCE_PP, 'algorithm.advantage': 'reinforce_pp_baseline'},
}

_PAPER = {  # [PDF]
    'num_steps': 400,
    'rollout.num_prompts': 512,
    'rollout.group_size': 16,
    'rollout.temperature': 1.0,
    'optimizer.learning_rate': 1e-6,  # 5e-7 in the scripts of REINFORCE forms
    'optimizer.weight_decay': 0.1,
    'optimizer.max_grad_norm': 1.0,
    'optimizer.warmup_steps': 10,
    'evaluation.tasks': ('aime24', 'aime25', 'amc23'),
    'evaluation.num_samples': 32,
}

_SCRIPTS = {  # [CODE]
    'learner.num_mini_batches': 16,  # of 32 prompts; "per GPU" in the paper
    'evaluation.every': 10,
    'checkpoint.every': 20,
}

_OURS = {
    # DAPO-Math-17k's English part [PDF] by its name on the hub; which file
    # that is, and its columns, are to be set where it lies on a disk.
    'task.name': 'table',
    'task.options': {'hub': 'open-r1/DAPO-Math-17k-Processed',
                     'columns': {'problem': 'prompt', 'answer': 'solution'}},
    'model.dtype': 'bfloat16',
    'model.remat': 'layer',
    'rollout.num_slots': 1024,
    'learner.logits_chunk': 32768,
    'mesh.data': 1,
    'mesh.fsdp': -1,
    'evaluation.num_problems': 0,
}


def get_config(variant=''):
  """A model, a rule and a context, as 'qwen3-4b,rpg_urkl,2k'."""
  chosen = variants.choose(
      variant, model=MODELS, rule=RULES, context=CONTEXTS)
  return variants.config(
      _OURS, _PAPER, _SCRIPTS, MODELS[chosen['model']],
      CONTEXTS[chosen['context']], RULES[chosen['rule']])
