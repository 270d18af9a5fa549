// Options that offload.move and trainer:evict share.
#pragma once

#include "files/page_multiple.h"
#include "files/swap_memory.h"
#include "zt/base/options.h"
#include "zt/base/value.h"

namespace zt::offload {

// Returns the options, with a folder that is given as a string as a list. Throws Misuse for a folder that is neither.
Value with_folders(const std::string& caller, const Value& options);

// Returns the schema with the options of disks.
template <class Options>
Schema<Options> with_disk_options(Schema<Options>&& schema) {
  return std::move(schema)
      .optional("folder", &Options::folder, "the folders over which the files are striped")
      .optional("block", &Options::block, "most bytes of one operation of the disk", multiple_of_pages)
      .optional("depth", &Options::depth, "operations of the disk under way; default: as many as staging needs",
                Check<int>(between(1, 4096)))
      .optional("direct", &Options::direct, "bypass the page cache where the file system can do so")
      .optional("checksum", &Options::checksum, "compare what is read with what was written");
}

}  // namespace zt::offload
