#include "handle.h"

#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

std::mutex& library() {
  static std::mutex mutex;
  return mutex;
}

struct Descriptions {
  std::string whole, cause;
};

herr_t describe_one(unsigned, const H5E_error2_t* error, void* data) {
  auto& found = *static_cast<Descriptions*>(data);
  if (!error->desc) return 0;
  if (found.whole.empty()) found.whole = error->desc;
  found.cause = error->desc;
  return 0;
}

}  // namespace

Hdf5Session::Hdf5Session() : lock_(library()) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Session::~Hdf5Session() {
  H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
}

void hdf5_fault(const std::string& what) {
  Descriptions found;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, describe_one, &found);
  H5Eclear2(H5E_DEFAULT);
  if (found.cause != found.whole) found.whole += ", " + found.cause;
  fault("cannot {}: {}", what, found.whole.empty() ? "libhdf5 gives no reason" : found.whole);
}

}  // namespace zt::ckpt
