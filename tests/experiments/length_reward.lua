-- A reward for scripts of scripts/exp/rlhf that is no task: short answers are better.
return function(_, _, _, tokens) return -tokens:numel() end
