// The filters and tests by name.
#pragma once

#include <map>
#include <string_view>

#include "template/value/run.h"

namespace zt::data::jinja {

using FilterFunction = TemplateValue (*)(TemplateRun&, const TemplateValue&, const CallArguments&);
using TestFunction = bool (*)(TemplateRun&, const TemplateValue&, const CallArguments&);
using FilterTable = std::map<std::string_view, FilterFunction>;
using TestTable = std::map<std::string_view, TestFunction>;

const FilterTable& all_filters();
const TestTable& all_tests();

// Each adds the filters of one file.
void add_text_filters(FilterTable& table);
void add_layout_filters(FilterTable& table);
void add_markup_filters(FilterTable& table);
void add_number_filters(FilterTable& table);
void add_list_filters(FilterTable& table);
void add_order_filters(FilterTable& table);
void add_select_filters(FilterTable& table);

// Returns a message about a name that is no filter or no test, or one that is not supported.
std::string unknown_filter_message(const std::string& name);
std::string unknown_test_message(const std::string& name);

// Throw Fault for a name that does not exist.
TemplateValue call_filter(TemplateRun& run, const std::string& name, const TemplateValue& value, const CallArguments& arguments);
bool call_test(TemplateRun& run, const std::string& name, const TemplateValue& value, const CallArguments& arguments);

}  // namespace zt::data::jinja
