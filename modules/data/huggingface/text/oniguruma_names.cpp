#include "huggingface/text/oniguruma_names.h"

#include <algorithm>
#include <iterator>

namespace zt::data::huggingface {

namespace {

struct NamePair {
  std::string_view name, property;
};

// Oniguruma's names, without case, spaces, hyphens and underscores, and the properties of PCRE2.
constexpr NamePair kProperties[] = {
    {"letter", "L"},
    {"casedletter", "L&"},
    {"lc", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"alpha", "Alphabetic"},
    {"alphabetic", "Alphabetic"},
    {"upper", "Uppercase"},
    {"uppercase", "Uppercase"},
    {"lower", "Lowercase"},
    {"lowercase", "Lowercase"},
    {"space", "White_Space"},
    {"whitespace", "White_Space"},
    {"any", "Any"},
    {"assigned", "Assigned"},
    {"emoji", "Emoji"},
    {"emojipresentation", "Emoji_Presentation"},
    {"emojimodifier", "Emoji_Modifier"},
    {"extendedpictographic", "Extended_Pictographic"},
    {"ideographic", "Ideographic"},
    {"idstart", "ID_Start"},
    {"idcontinue", "ID_Continue"},
    {"math", "Math"},
    {"dash", "Dash"},
    {"diacritic", "Diacritic"},
    {"extender", "Extender"},
};

constexpr std::string_view kCategories[] = {"l",  "lu", "ll", "lt", "lm", "lo", "m",  "mn", "mc", "me", "n",  "nd",
                                            "nl", "no", "p",  "pc", "pd", "ps", "pe", "pi", "pf", "po", "s",  "sm",
                                            "sc", "sk", "so", "z",  "zs", "zl", "zp", "c",  "cc", "cf", "cn", "co"};

constexpr NamePair kPosixClasses[] = {
    {"alpha", "\\p{Alphabetic}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"digit", "\\p{Nd}"},         {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},  {"space", "\\p{White_Space}"},
    {"blank", "\\x{9}\\p{Zs}"},   {"cntrl", "\\p{Cc}"},
    {"punct", "\\p{P}\\p{S}"},    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
    {"xdigit", "0-9a-fA-F"},      {"ascii", "\\x{0}-\\x{7f}"},
};

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char byte : name) {
    if (byte == ' ' || byte == '-' || byte == '_') continue;
    plain += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
  }
  return plain;
}

}  // namespace

std::string oniguruma_property(std::string_view name, bool is_negated) {
  const std::string plain = plain_name(name);
  const std::string start = is_negated ? "\\P{" : "\\p{";
  for (const NamePair& pair : kProperties) {
    if (pair.name == plain) return start + std::string(pair.property) + "}";
  }
  if (std::find(std::begin(kCategories), std::end(kCategories), plain) != std::end(kCategories)) {
    std::string category = plain;
    category[0] = static_cast<char>(category[0] - 'a' + 'A');
    return start + category + "}";
  }
  return start + "sc:" + std::string(name) + "}";
}

std::optional<std::string> posix_class(std::string_view name) {
  for (const NamePair& pair : kPosixClasses) {
    if (pair.name == name) return std::string(pair.property);
  }
  return std::nullopt;
}

}  // namespace zt::data::huggingface
