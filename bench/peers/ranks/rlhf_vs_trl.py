"""The side of TRL, PEFT and bitsandbytes of rlhf_vs.py: FOLDER ROW TURNS THREADS RATE. rlhf_vs_turns.py says what it answers.
Started by torch.distributed.run it is a rank of DistributedDataParallel, which has its part of each batch.

sft, lora and qlora run packed, as TRL does it (all sequences of a batch as one row, `padding_free`), or with `_padded` after the
row's name as a row per sequence."""

import json
import os
import pathlib
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py

import needs

needs.packages("bitsandbytes", "peft", "torch", "transformers", "trl", environment=".venv-rlhf", starter="rlhf_vs.py")

import datasets
import peft
import torch
import transformers
import trl

import rlhf_vs_ppo
from rlhf_vs_turns import Turns

MANY = 10**6  # steps, of which the benchmark asks for some
ANSWERS = 8   # to each prompt of grpo
RANKS = int(os.environ.get("WORLD_SIZE", 1))
ADAPTER = dict(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


class Iterations(transformers.TrainerCallback):
    """Lets a trainer run as many steps as it is asked for."""

    def __init__(self, turns):
        self.turns, self.left, self.began, self.loss = turns, 0, 0.0, None

    def watch(self, trainer):
        """Keeps the loss of each step of the trainer."""
        step = trainer.training_step

        def kept(*arguments, **options):
            self.loss = step(*arguments, **options)
            return self.loss

        trainer.training_step = kept
        trainer.add_callback(self)

    def begin(self):
        self.left, self.began = self.turns.wait(), time.monotonic()

    def on_train_begin(self, arguments, state, control, **_):
        self.begin()

    def on_step_end(self, arguments, state, control, **_):
        self.left -= 1
        if self.left == 0:
            seconds, loss = time.monotonic() - self.began, self.loss.clone()
            if RANKS > 1:
                torch.distributed.all_reduce(loss)
            if state.is_world_process_zero:
                self.turns.done(seconds, loss.item() / RANKS)
            self.turns.turn += 1
            self.begin()
            control.should_training_stop = self.left == 0


def arguments_of(kind, folder, rate, **more):
    """Returns a trainer's configuration without logs, checkpoints and recomputation."""
    return kind(output_dir=str(folder / "trl"), use_cpu=True, ddp_backend="gloo" if RANKS > 1 else None, bf16=False,
                gradient_checkpointing=False, max_steps=MANY,
                logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=rate,
                lr_scheduler_type="constant", optim="adamw_torch_fused", weight_decay=0.0, max_grad_norm=1.0,
                remove_unused_columns=False, **more)


def load(folder, name, **more):
    return transformers.AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32, **more)


def text_of(tokens):
    """Returns the text of which the tokenizer makes these tokens."""
    return "".join(f" {token}" if token else " </s>" for token in tokens)


def sft(folder, data, tokenizer, rate, row):
    kind, _, padded = row.partition("_")
    records = [record for batch in data["sft"] for record in batch]
    dataset = datasets.Dataset.from_list([
        {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer} for prompt, answer in records])
    model = load(folder, "model", **({"quantization_config": quantised(), "device_map": "cpu"} if kind == "qlora" else {}))
    configuration = arguments_of(trl.SFTConfig, folder, rate, per_device_train_batch_size=len(data["sft"][0]) // RANKS,
                                 train_sampling_strategy="sequential", padding_free=not padded, max_length=None)
    return trl.SFTTrainer(model, args=configuration, train_dataset=dataset, processing_class=tokenizer,
                          peft_config=peft.LoraConfig(**ADAPTER) if kind != "sft" else None)


def quantised():
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                           bnb_4bit_compute_dtype=torch.float32)


def dpo(folder, data, tokenizer, rate, row):
    pairs = [pair for batch in data["dpo"] for pair in batch]
    dataset = datasets.Dataset.from_list([
        {name: text_of(pair[name]) for name in ("prompt", "chosen", "rejected")} for pair in pairs])
    configuration = arguments_of(trl.DPOConfig, folder, rate, per_device_train_batch_size=len(data["dpo"][0]) // RANKS, beta=0.1,
                                 train_sampling_strategy="sequential", max_length=None, precompute_ref_log_probs=False)
    return trl.DPOTrainer(load(folder, "model"), ref_model=load(folder, "reference"), args=configuration, train_dataset=dataset,
                          processing_class=tokenizer)


def grpo(folder, data, tokenizer, rate, row):
    prompts = [prompt for batch in data["prompts"]["grpo"] for prompt in batch]

    def reward(completion_ids, **_):
        return [sum(tokens) / len(tokens) / data["vocab"] for tokens in completion_ids]

    count = data["answer_tokens"]
    configuration = arguments_of(trl.GRPOConfig, folder, rate, num_generations=ANSWERS, beta=0.0, max_completion_length=count,
                                 shuffle_dataset=False,
                                 per_device_train_batch_size=ANSWERS * len(data["prompts"]["grpo"][0]) // RANKS,
                                 generation_kwargs={"min_new_tokens": count})
    return trl.GRPOTrainer(load(folder, "model"), reward_funcs=reward, args=configuration, processing_class=tokenizer,
                           train_dataset=datasets.Dataset.from_list([{"prompt": text_of(prompt)} for prompt in prompts]))


def run_ppo(folder, data, turns, rate):
    ppo, step = rlhf_vs_ppo.Ppo(folder, data, rate), 0
    while count := turns.wait():
        began = time.monotonic()
        for _ in range(count):
            loss = ppo.iterate(step)
            step += 1
        turns.done(time.monotonic() - began, loss)
        turns.turn += 1


def main():
    folder, row, turns, rate = pathlib.Path(sys.argv[1]), sys.argv[2], Turns(sys.argv[3]), float(sys.argv[5])
    torch.set_num_threads(int(sys.argv[4]))
    data = json.loads((folder / "data.json").read_text())
    if row == "ppo":
        run_ppo(folder, data, turns, rate)
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    trainer = {"dpo": dpo, "grpo": grpo}.get(row, sft)(folder, data, tokenizer, rate, row)
    Iterations(turns).watch(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
