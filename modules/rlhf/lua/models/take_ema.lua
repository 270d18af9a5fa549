--- rlhf.take_ema(from, to): copies the average of rlhf.ema to another trainer.
return require("zt.rlhf.models.averages").take
