// What nearly every file includes, compiled once. Not what only some do: the templates of everything here are instantiated again
// in every file (autograd's functions and JSON would double the seconds of an empty one).
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
