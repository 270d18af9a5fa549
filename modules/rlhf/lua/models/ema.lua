--- rlhf.ema{decay = 0.992}: a pass that keeps a moving average of the parameters.
return require("zt.rlhf.models.averages").pass
