// Machines that are known by name.
#include "hardware.h"

namespace zt {

namespace {

// The rates are the vendor's peaks for dense matrices. Training reaches a part of them; 0.5 is what large runs report.
// A link's bandwidth is one direction's.
std::vector<Hardware> make_known() {
  Hardware a100{.name = "a100",
                .flops = {{"bf16", 312e12}, {"fp16", 312e12}, {"fp32", 19.5e12}, {"fp64", 19.5e12}},
                .memory_bandwidth = 2.039e12,
                .inside = {5e-6, 300e9},
                .across = {10e-6, 25e9},
                .ranks_per_machine = 8,
                .efficiency = 0.5,
                .launch = 10e-6,
                .overlaps = true,
                .source =
                    "NVIDIA A100 80GB SXM data sheet (dense, fp32 without TF32; NVLink 600 GB/s both ways); 200 Gbit/s of "
                    "InfiniBand per GPU as in DGX A100; latencies and launch time as commonly measured with NCCL"};
  Hardware h100 = a100;
  h100.name = "h100";
  h100.flops = {{"bf16", 989e12}, {"fp16", 989e12}, {"fp32", 67e12}, {"fp64", 67e12}};
  h100.memory_bandwidth = 3.35e12;
  h100.inside.bandwidth = 450e9;
  h100.across.bandwidth = 50e9;
  h100.source =
      "NVIDIA H100 SXM data sheet (dense, fp32 without TF32; NVLink 900 GB/s both ways); 400 Gbit/s of InfiniBand "
      "per GPU as in DGX H100; latencies and launch time as commonly measured with NCCL";
  Hardware h200 = h100;
  h200.name = "h200";
  h200.memory_bandwidth = 4.8e12;
  h200.source =
      "NVIDIA H200 SXM data sheet (as H100, with 4.8 TB/s of memory bandwidth); links, latencies and launch time as for h100";
  return {a100, h100, h200};
}

}  // namespace

const std::vector<Hardware>& known_hardware() {
  static const std::vector<Hardware> known = make_known();
  return known;
}

}  // namespace zt
