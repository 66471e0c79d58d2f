"""The options of verl that are looked at, with the defaults of 0.9.1."""
from rlclip.translate.reading import count, flag, interval, number, Option, text

ACTOR = 'actor_rollout_ref.actor.'
ROLLOUT = 'actor_rollout_ref.rollout.'
LOSS = f'{ACTOR}policy_loss.'
CORRECTION = 'algorithm.rollout_correction.'
THRESHOLD = f'{CORRECTION}rollout_is_threshold'
BUFFER = 'reward.reward_kwargs.overlong_buffer_cfg.'
RENAMED = {
    f'reward_model.reward_kwargs.overlong_buffer_cfg.{name}':
        f'{BUFFER}{name}' for name in ('enable', 'len', 'penalty_factor')}
OPTIONS = {
    f'{ACTOR}clip_ratio': Option(0.2, number),
    f'{ACTOR}clip_ratio_low': Option(0.2, number, nullable=True),
    f'{ACTOR}clip_ratio_high': Option(0.2, number, nullable=True),
    f'{ACTOR}clip_ratio_c': Option(3.0, number),
    f'{ACTOR}loss_agg_mode': Option('token-mean', text),
    f'{ACTOR}loss_scale_factor': Option(None, number),
    f'{ACTOR}entropy_coeff': Option(0.0, number),
    f'{ACTOR}tau_pos': Option(1.0, number),
    f'{ACTOR}tau_neg': Option(1.05, number),
    f'{ACTOR}use_kl_loss': Option(False, flag),
    f'{ACTOR}kl_loss_coef': Option(0.001, number),
    f'{ACTOR}kl_loss_type': Option('low_var_kl', text),
    f'{ACTOR}ppo_epochs': Option(1, count),
    f'{ACTOR}ppo_mini_batch_size': Option(256, count),
    f'{ACTOR}ppo_micro_batch_size_per_gpu': Option(None, count),
    f'{ACTOR}use_dynamic_bsz': Option(False, flag),
    f'{LOSS}loss_mode': Option('vanilla', text),
    f'{LOSS}clip_cov_ratio': Option(2e-4, number),
    f'{LOSS}clip_cov_lb': Option(1.0, number),
    f'{LOSS}clip_cov_ub': Option(5.0, number),
    f'{LOSS}kl_cov_ratio': Option(2e-4, number),
    f'{LOSS}ppo_kl_coef': Option(0.1, number),
    f'{LOSS}dro_beta': Option(None, number),
    f'{ROLLOUT}n': Option(1, count),
    f'{ROLLOUT}temperature': Option(1.0, number),
    f'{ROLLOUT}top_p': Option(1.0, number),
    f'{ROLLOUT}top_k': Option(-1, count),
    'algorithm.adv_estimator': Option('gae', text),
    'algorithm.norm_adv_by_std_in_grpo': Option(True, flag),
    'algorithm.use_kl_in_reward': Option(False, flag),
    'algorithm.kl_penalty': Option('kl', text),
    'algorithm.kl_ctrl.type': Option('fixed', text),
    'algorithm.kl_ctrl.kl_coef': Option(0.001, number),
    'algorithm.kl_ctrl.target_kl': Option(0.1, number),
    'algorithm.kl_ctrl.horizon': Option(10000, number),
    'algorithm.use_pf_ppo': Option(False, flag),
    'algorithm.filter_groups.enable': Option(False, flag),
    'algorithm.filter_groups.metric': Option('reward', text),
    f'{CORRECTION}rollout_is': Option(None, text),
    THRESHOLD: Option((0.0, 2.0), interval),
    f'{CORRECTION}rollout_rs': Option(None, text),
    f'{CORRECTION}rollout_rs_threshold': Option(None, text),
    f'{CORRECTION}rollout_is_batch_normalize': Option(False, flag),
    f'{CORRECTION}bypass_mode': Option(False, flag),
    f'{CORRECTION}loss_type': Option('ppo_clip', text),
    'data.train_batch_size': Option(1024, count),
    'data.max_prompt_length': Option(512, count),
    'data.max_response_length': Option(512, count),
    f'{BUFFER}enable': Option(False, flag),
    f'{BUFFER}len': Option(None, count),
    f'{BUFFER}penalty_factor': Option(1.0, number),
    'trainer.n_gpus_per_node': Option(8, count),
    'trainer.nnodes': Option(1, count),
}
