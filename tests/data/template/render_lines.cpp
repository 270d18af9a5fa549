// Renders templates for tests/oracle/make_templates.py --live: reads a line of JSON per template, {template, messages, variables,
// add_generation_prompt}, and writes a line, {output, answers} or {error}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "template/chat_template.h"
#include "template/kept_json.h"
#include "zt/base/error.h"
#include "zt/base/value.h"

namespace {

constexpr std::time_t kOracleTime = 1753963200;  // NOW of make_templates.py

nlohmann::json render_line(const nlohmann::ordered_json& line) {
  try {
    const auto parsed = zt::data::parse_chat_template(line["template"].get<std::string>(), "live", [] { return kOracleTime; });
    const auto messages = zt::data::parse_kept_json(line["messages"].dump(), "the messages");
    const auto chat = parsed->render(zt::Object::of<zt::data::KeptJson>(messages), zt::data::fields_of({line["variables"]}),
                                     line["add_generation_prompt"].get<bool>());
    nlohmann::json answers = nlohmann::json::array();
    for (const auto& range : chat.answers) answers.push_back({range.begin, range.end});
    return {{"output", chat.text}, {"answers", answers}};
  } catch (const zt::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << render_line(nlohmann::ordered_json::parse(line)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
}
