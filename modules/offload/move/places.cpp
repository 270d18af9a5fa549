#include "places.h"

#include "device/tiers.h"
#include "files/page_multiple.h"
#include "move/move_options.h"
#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt::offload {

namespace {

class PlacesPass final : public Pass {
 public:
  explicit PlacesPass(PlaceOptions options) : options_(std::move(options)) {}

  std::string name() const override { return options_.caller; }
  Phase phase() const override { return Phase::movement; }
  RankProgram apply(RankProgram program, const ModelInfo&, const Coord&) const override { return program; }
  std::shared_ptr<Homes> make_homes(const HomeNeeds& needs) const override {
    return make_tiers(options_, options_.to == Tier::file, needs);
  }

 private:
  const PlaceOptions options_;
};

// The words of scripts.
enum class To : uint8_t { host, nvme };
constexpr auto words_of(To) {
  return std::array{"host", "nvme"};
}
struct GivenPlace : PlaceOptions {
  To where = To::nvme;
};

}  // namespace

PlaceOptions parse_place_options(const Value& options) {
  static const auto schema =
      with_disk_options(Schema<GivenPlace>("trainer:evict")
                            .required("to", &GivenPlace::where, "where the data go: nvme, or host for ranks on a GPU"));
  GivenPlace parsed = schema.parse(with_folders("trainer:evict", options));
  parsed.caller = "trainer:evict";
  parsed.advice = "add a folder, or take another disk";
  parsed.to = parsed.where == To::host ? Tier::host : Tier::file;
  if (parsed.to == Tier::file && parsed.folder.empty())
    misuse("trainer:evict: to = \"nvme\" needs a folder: give folder = \"/path\" on the disk that is to hold the data");
  const auto* given = options.get_if<Value::Table>();
  for (const auto& [name, value] : given ? *given : Value::Table()) {
    if (parsed.to == Tier::host && name != "to")
      misuse("trainer:evict: {} has an effect only with to = \"nvme\": leave it out", name);
  }
  return parsed;
}

std::shared_ptr<Pass> make_places(PlaceOptions options) {
  return std::make_shared<PlacesPass>(std::move(options));
}

}  // namespace zt::offload
