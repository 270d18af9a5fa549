// Tests that HDF5's own tools and h5py can read checkpoints.
#include <cstdio>

#include "ckpt/support/saved.h"

namespace zt::ckpt {

namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  const int status = pclose(pipe);
  EXPECT_EQ(status, 0) << command << "\n" << text;
  return text;
}

bool has(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

// Returns a Python that has h5py, or an empty text. The first Python in the path may lack it.
std::string python_with_h5py() {
  for (const char* python : {ZT_TEST_PYTHON, "python3"}) {
    if (has(std::string(python) + " -c 'import h5py'")) return python;
  }
  return {};
}

// A checkpoint with 3 shards that divide rows, in a folder that was moved after it was written.
class CkptTools : public testing::Test {
 protected:
  void SetUp() override {
    folder.put(small_checkpoint(), "written");
    std::filesystem::create_directory(folder / "other");
    std::filesystem::rename(folder / "written", folder / "other/moved");
  }
  std::string master() const { return folder / "other/moved/checkpoint.h5"; }
  Folder folder;
};

}  // namespace

TEST_F(CkptTools, H5lsListsTrueShapes) {
  if (!has("h5ls --version")) GTEST_SKIP() << "h5ls is not installed";
  const std::string text = output_of("h5ls -r " + master());
  for (const char* line :
       {"/model/h.0.weight        Dataset {7, 5}", "/model/cube              Dataset {3, 4, 5}",
        "/model/scale             Dataset {SCALAR}", "/model/none              Dataset {4, 0, 3}",
        "/trainer/step            Dataset {SCALAR}", "/script/mixed/2          Dataset {1}", "/trainer/loss_scale      Group"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(output_of("h5ls -r " + (folder / "other/moved/shards/rank_00001.h5")),
              HasSubstr("/model/h.0.weight        Dataset {11}"));
}

TEST_F(CkptTools, H5dumpShowsNumbers) {
  if (!has("h5dump --version")) GTEST_SKIP() << "h5dump is not installed";
  const auto dump = [&](const std::string& dataset) { return output_of("h5dump -d " + dataset + " " + master()); };
  EXPECT_THAT(dump("/model/h.0.weight"), HasSubstr("(2,0): 10, 11, 12, 13, 14,\n"));
  EXPECT_THAT(dump("/model/h.0.weight"), HasSubstr("\"out\", \"in\\000\""));
  EXPECT_THAT(dump("/model/h.0.bias"), HasSubstr("(0): 0, 1, 2, 3, 4, 5\n"));
  EXPECT_THAT(dump("/model/cube"), HasSubstr("(2,3,0): 55, 56, 57, 58, 59\n"));
  EXPECT_THAT(dump("/model/scale"), HasSubstr("(0): 42\n"));
  EXPECT_THAT(dump("/data/mask"), HasSubstr("TRUE, TRUE, TRUE, TRUE, TRUE\n"));
  EXPECT_THAT(dump("/trainer/loss_scale/scale"), HasSubstr("(0): 65536\n"));
  EXPECT_THAT(dump("/script/name"), HasSubstr("\"gpt\""));
}

TEST_F(CkptTools, H5pyReadsParameters) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "h5py is not installed";
  folder.put("read.py", std::as_bytes(std::span<const char>(std::string_view(R"(
import h5py, sys
with h5py.File(sys.argv[1]) as f:
    weight = f["model/h.0.weight"]
    print(weight.is_virtual, weight.shape, weight[...].sum(), weight[2, 1:4].tolist(), weight.attrs["dims"].tolist())
    print(f["model/h.0.bias"][...].sum(), f["model/cube"].dtype, f["model/cube"][...].sum(dtype="f8"), f["model/scale"][()])
    print(f["model/none"][...].shape, f["data/mask"].dtype, f["data/mask"][...].sum(), f["optimizer/exp_avg/h.0.weight"][...].sum())
    print(f["trainer/step"][()], f["trainer/loss_scale/scale"][()], f["script/name"][()].decode(), f["script/sizes"][...].tolist())
)"))));
  EXPECT_EQ(output_of(python + " " + (folder / "read.py") + " " + master()),
            "True (7, 5) 595.0 [11.0, 12.0, 13.0] [b'out', b'in']\n"
            "15.0 float16 1770.0 42\n"
            "(4, 0, 3) bool 5 595.0\n"
            "200 65536.0 gpt [1, 2, 3]\n");
}

}  // namespace zt::ckpt
