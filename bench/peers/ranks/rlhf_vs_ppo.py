"""An iteration of PPO with the formulas of TRL's PPOTrainer, of which TRL 1.16 has no more: its update on every answer once."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py

import needs

needs.packages("torch", "transformers", environment=".venv-rlhf", starter="rlhf_vs.py")

import torch
import transformers

KL, GAMMA, LAMBDA, CLIP, CLIP_VALUE, VALUE_COEFFICIENT = 0.05, 1.0, 0.95, 0.2, 0.2, 0.1


def logprobs_of(logits, tokens):
    """Returns the log-probabilities of the tokens without a softmax of all, as TRL's selective_log_softmax does."""
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


class Ppo:
    def __init__(self, folder, data, rate):
        causal, scored = transformers.AutoModelForCausalLM, transformers.AutoModelForSequenceClassification

        def load(kind, name, **more):
            return kind.from_pretrained(folder / name, dtype=torch.float32, **more)

        self.prompts, self.tokens = torch.tensor(data["prompts"]["ppo"]), data["answer_tokens"]
        self.policy, self.reference = load(causal, "model"), load(causal, "model").eval()
        self.critic = load(scored, "model", num_labels=1)
        self.reward = load(scored, "reference", num_labels=1).eval()
        parameters = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.999), weight_decay=0.0, fused=True)
        self.generation = transformers.GenerationConfig(
            max_new_tokens=self.tokens, min_new_tokens=self.tokens, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            eos_token_id=0, pad_token_id=0)

    @staticmethod
    def values_of(model, rows):
        """Returns a number per position."""
        hidden = model.base_model(input_ids=rows, use_cache=False).last_hidden_state
        return model.score(hidden).squeeze(-1)

    def logprobs(self, model, rows, begin):
        logits = model(input_ids=rows, use_cache=False).logits[:, begin - 1 : -1]
        return logprobs_of(logits, rows[:, begin:])

    @torch.no_grad()
    def experience(self, prompts):
        """Returns the rows of tokens, and of the answers' tokens log-probabilities, values, advantages and returns."""
        begin = prompts.shape[1]
        self.policy.eval()
        made = self.policy.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=self.generation,
                                    return_dict_in_generate=True, output_logits=True)
        self.policy.train()
        rows = made.sequences
        old = logprobs_of(torch.stack(made.logits, 1), rows[:, begin:])
        rewards = -KL * (old - self.logprobs(self.reference, rows, begin))
        values = self.values_of(self.critic, rows)[:, begin - 1 : -1]
        rewards[:, -1] += self.values_of(self.reward, rows)[:, -1]
        advantages, after = torch.zeros_like(values), torch.zeros(len(rows))
        for t in reversed(range(self.tokens)):
            next_value = values[:, t + 1] if t + 1 < self.tokens else 0.0
            after = rewards[:, t] + GAMMA * next_value - values[:, t] + GAMMA * LAMBDA * after
            advantages[:, t] = after
        whitened = (advantages - advantages.mean()) * torch.rsqrt(advantages.var() + 1e-8)
        return rows, old, values, whitened, advantages + values

    def iterate(self, step):
        """Runs an iteration. Returns the loss of the policy."""
        prompts = self.prompts[step % len(self.prompts)]
        begin = prompts.shape[1]
        rows, old, values, advantages, returns = self.experience(prompts)
        ratio = (self.logprobs(self.policy, rows, begin) - old).exp()
        policy_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        now = self.values_of(self.critic, rows)[:, begin - 1 : -1]
        bounded = torch.clamp(now, values - CLIP_VALUE, values + CLIP_VALUE)
        value_loss = 0.5 * torch.max((now - returns).square(), (bounded - returns).square()).mean()
        (policy_loss + VALUE_COEFFICIENT * value_loss).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return policy_loss.item()
