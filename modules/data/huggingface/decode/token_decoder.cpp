#include "huggingface/decode/token_decoder.h"

#include "huggingface/decode/byte_decoders.h"
#include "huggingface/decode/space_decoders.h"
#include "huggingface/decode/text_decoders.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

TokenDecoder::~TokenDecoder() = default;

std::vector<std::unique_ptr<TokenDecoder>> parse_decoders(const JsonFields& fields) {
  std::vector<std::unique_ptr<TokenDecoder>> decoders;
  const std::string type = fields.has("type") ? fields.text("type") : "";
  if (type == "Sequence") {
    fields.allow_only({"type", "decoders"});
    const JsonValue& list = fields.list("decoders");
    for (size_t i = 0; i < list.size(); ++i) {
      for (auto& each : parse_decoders({list[i], fmt::format("{}[{}]", fields.place_of("decoders"), i)})) {
        decoders.push_back(std::move(each));
      }
    }
    return decoders;
  }
  using Parser = std::unique_ptr<TokenDecoder> (*)(const std::string&, const JsonFields&);
  for (const Parser parse : {parse_byte_decoder, parse_space_decoder, parse_text_decoder}) {
    if (auto decoder = parse(type, fields)) {
      decoders.push_back(std::move(decoder));
      return decoders;
    }
  }
  fields.refuse("decoder",
                "known are Sequence, ByteLevel, ByteFallback, Metaspace, WordPiece, BPEDecoder, Fuse, Strip, Replace and CTC");
}

}  // namespace zt::data::huggingface
