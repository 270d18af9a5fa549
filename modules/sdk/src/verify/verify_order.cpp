#include "play/player.h"
#include "verify.h"

namespace zt::verifier {

std::vector<RankFinding> check_order(const ModelInfo& model, const MeshShape& mesh,
                                     const std::vector<const RankProgram*>& programs) {
  std::vector<RankFinding> findings;
  for (PlayError& error : play(played_ranks(model, mesh, programs), model, {}).errors)
    findings.push_back({error.rank, {error.step, std::move(error.reason)}});
  return findings;
}

}  // namespace zt::verifier
