// The binding of zt.rlhf, most of which is Lua.
#include "open.h"

ZT_LUA_MODULE(rlhf) {
  zt::rlhf::open_rows(module);
  zt::rlhf::open_advantages(module);
  module.table("loss", [](zt::lua::Module& loss) {
    loss.from_lua("reward", "zt.rlhf.loss.reward").from_lua("dpo", "zt.rlhf.loss.dpo").from_lua("ppo", "zt.rlhf.loss.ppo");
    loss.from_lua("value", "zt.rlhf.loss.value").from_lua("grpo", "zt.rlhf.loss.grpo").from_lua("ptx", "zt.rlhf.loss.ptx");
    loss.from_lua("distil", "zt.rlhf.loss.distil");
  });
  module.from_lua("reference", "zt.rlhf.models.reference").from_lua("teacher", "zt.rlhf.models.teacher");
  module.from_lua("rollout", "zt.rlhf.answers.rollout")
      .from_lua("score", "zt.rlhf.answers.score")
      .from_lua("advantages", "zt.rlhf.answers.advantages");
  module.from_lua("batches", "zt.rlhf.answers.batches").from_lua("samples", "zt.rlhf.answers.samples");
  module.from_lua("ema", "zt.rlhf.models.ema")
      .from_lua("take_ema", "zt.rlhf.models.take_ema")
      .from_lua("reject", "zt.rlhf.answers.reject")
      .from_lua("report", "zt.rlhf.models.report");
  module.from_lua("align_overflow", "zt.rlhf.models.align_overflow");
}
