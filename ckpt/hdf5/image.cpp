#include "image.h"

#include <H5FDpublic.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>

namespace zt::ckpt {

namespace {

constexpr const char* kImageName = "ztoolkit image";

// The driver's parameters. libhdf5 passes them to it in a file access list.
struct ImageAccess {
  SparseMemory* memory;    // null means read-only
  const std::byte* bytes;  // used if `memory` is null
  int64_t size;
  ImageLayout layout;
};

// An open file of the driver. Metadata is allocated from [metadata, metadata_end).
struct OpenImage : H5FD_t {
  ImageAccess access;
  haddr_t end = 0;  // end of libhdf5's allocations
  haddr_t metadata = 0, metadata_end = 0;

  haddr_t size() const { return static_cast<haddr_t>(access.memory ? access.memory->bytes() : access.size); }
  const std::byte* bytes() const { return access.memory ? access.memory->data() : access.bytes; }
};

OpenImage& image(H5FD_t* file) {
  return *static_cast<OpenImage*>(file);
}
const OpenImage& image(const H5FD_t* file) {
  return *static_cast<const OpenImage*>(file);
}

H5FD_t* open(const char* name, unsigned, hid_t access_list, haddr_t) {
  const void* info = H5Pget_driver_info(access_list);
  if (!info || std::strcmp(name, kImageName) != 0) return nullptr;
  auto* opened = new OpenImage{};
  opened->access = *static_cast<const ImageAccess*>(info);
  return opened;
}

herr_t close(H5FD_t* file) {
  delete &image(file);
  return 0;
}

haddr_t round_up(haddr_t value, int64_t step) {
  return (value + static_cast<haddr_t>(step) - 1) / static_cast<haddr_t>(step) * static_cast<haddr_t>(step);
}

haddr_t allocate(H5FD_t* file, H5FD_mem_t type, hid_t, hsize_t size) {
  OpenImage& to = image(file);
  const ImageLayout& layout = to.access.layout;
  if (type == H5FD_MEM_DRAW) {
    const haddr_t place = round_up(to.end, layout.data_alignment);
    to.end = place + size;
    return place;
  }
  if (to.metadata + size > to.metadata_end) {
    to.metadata = to.end == static_cast<haddr_t>(layout.user_block) ? to.end : round_up(to.end, layout.data_alignment);
    to.metadata_end = to.end = to.metadata + std::max<haddr_t>(size, static_cast<haddr_t>(layout.metadata_block));
  }
  const haddr_t place = to.metadata;
  to.metadata += size;
  return place;
}

haddr_t allocated_end(const H5FD_t* file, H5FD_mem_t) {
  return image(file).end;
}

// libhdf5 also calls this to return unused space at the end of the file.
herr_t set_allocated_end(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  OpenImage& to = image(file);
  to.end = end;
  to.metadata_end = std::min(to.metadata_end, end);
  to.metadata = std::min(to.metadata, end);
  return 0;
}

haddr_t file_end(const H5FD_t* file, H5FD_mem_t) {
  return image(file).size();
}

// A read past the file's end gives zeros, as with libhdf5's own drivers.
herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t place, size_t size, void* buffer) {
  const OpenImage& from = image(file);
  const haddr_t there = place < from.size() ? std::min<haddr_t>(size, from.size() - place) : 0;
  if (there > 0) std::memcpy(buffer, from.bytes() + place, there);
  std::memset(static_cast<char*>(buffer) + there, 0, size - there);
  return 0;
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t place, size_t size, const void* buffer) {
  OpenImage& to = image(file);
  if (!to.access.memory || place > to.end || size > to.end - place) return -1;
  try {
    if (place + size > to.size()) to.access.memory->resize(static_cast<int64_t>(place + size));
  } catch (const std::exception&) {
    return -1;  // no exception may pass through libhdf5
  }
  std::memcpy(to.access.memory->data() + place, buffer, size);
  return 0;
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  OpenImage& to = image(file);
  try {
    if (to.access.memory && to.size() != to.end) to.access.memory->resize(static_cast<int64_t>(to.end));
  } catch (const std::exception&) {
    return -1;
  }
  return 0;
}

// The driver sets no function `query`, so that libhdf5 does not collect small writes: a write is only a copy in memory.
H5FD_class_t driver_class() {
  H5FD_class_t driver{};
  driver.name = "ztoolkit_image";
  driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(ImageAccess);
  driver.open = open;
  driver.close = close;
  driver.alloc = allocate;
  driver.get_eoa = allocated_end;
  driver.set_eoa = set_allocated_end;
  driver.get_eof = file_end;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  const H5FD_mem_t kinds[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;  // space of freed data is not reused for metadata
  std::copy(std::begin(kinds), std::end(kinds), driver.fl_map);
  return driver;
}

// Returns the driver's id. The driver is registered once per process.
hid_t driver_id() {
  static const H5FD_class_t driver = driver_class();
  static const hid_t id = checked(H5FDregister(&driver), "register a driver with libhdf5");
  return id;
}

Handle access_list(const ImageAccess& access) {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make a file access list");
  checked(H5Pset_driver(list, driver_id(), &access), "set a file driver");
  // The format of HDF5 1.10 has checksums of its metadata, and all later versions read it.
  checked(H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110), "set a file format");
  checked(H5Pset_fclose_degree(list, H5F_CLOSE_STRONG), "set how files are closed");
  return list;
}

}  // namespace

Handle create_image(SparseMemory& memory, const ImageLayout& layout) {
  Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "make a file creation list");
  checked(H5Pset_userblock(list, static_cast<hsize_t>(layout.user_block)), "set a user block");
  checked(H5Pset_obj_track_times(list, false), "leave out times");
  set_attributes_compact(list);
  set_links(list, layout.root);
  return {H5Fcreate(kImageName, H5F_ACC_TRUNC, list, access_list({&memory, nullptr, 0, layout})), H5Fclose, "make an HDF5 file"};
}

Handle change_image(SparseMemory& memory) {
  return {H5Fopen(kImageName, H5F_ACC_RDWR, access_list({&memory, nullptr, 0, {}})), H5Fclose, "open an HDF5 file"};
}

Handle read_image(std::span<const std::byte> bytes) {
  const ImageAccess access{nullptr, bytes.data(), static_cast<int64_t>(bytes.size()), {}};
  return {H5Fopen(kImageName, H5F_ACC_RDONLY, access_list(access)), H5Fclose, "open an HDF5 file"};
}

}  // namespace zt::ckpt
