// Machines that are known by name.
#include "hardware.h"

namespace zt {

namespace {

// Rates are the vendor's peaks for dense matrices; a link's bandwidth is that of one direction. The efficiency of flops is what
// matrices must reach, beside the time of memory, for the steps of large GPTs that were published for one machine: by MosaicML's
// llm-foundry (scripts/train/benchmarking) for A100 and H100, and by NVIDIA's Megatron-LM 1.0 for V100. That of links is what
// NVIDIA's nccl-tests show for large messages.
std::vector<Hardware> make_known() {
  Hardware a100{
      .name = "a100",
      .flops = {{"bf16", 312e12}, {"fp16", 312e12}, {"fp32", 19.5e12}, {"fp64", 19.5e12}},
      .memory_bandwidth = 2.039e12,
      .inside = {3e-6, 300e9},
      .across = {10e-6, 25e9},
      .ranks_per_machine = 8,
      .cards_per_machine = 8,
      .efficiency = {.flops = 0.7, .memory = 0.8, .links = 0.8},
      .launch = 10e-6,
      .overlaps = true,
      .backend = "nccl",
      .source =
          "NVIDIA A100 80GB SXM data sheet (dense, fp32 without TF32; NVLink 600 GB/s both ways); DGX A100 with 8 cards of "
          "200 Gbit/s"};
  Hardware h100 = a100;
  h100.name = "h100";
  h100.flops = {{"bf16", 989e12}, {"fp16", 989e12}, {"fp32", 67e12}, {"fp64", 67e12}};
  h100.memory_bandwidth = 3.35e12;
  h100.inside.bandwidth = 450e9;
  h100.across.bandwidth = 50e9;
  h100.efficiency.flops = 0.55;
  h100.source =
      "NVIDIA H100 SXM data sheet (dense, fp32 without TF32; NVLink 900 GB/s both ways); DGX H100 with 8 cards of 400 Gbit/s";
  Hardware h200 = h100;
  h200.name = "h200";
  h200.memory_bandwidth = 4.8e12;
  h200.source = "NVIDIA H200 SXM data sheet (as H100, with 4.8 TB/s of memory bandwidth); DGX H200 with 8 cards of 400 Gbit/s";
  Hardware v100 = a100;
  v100.name = "v100";
  v100.flops = {{"fp16", 125e12}, {"fp32", 15.7e12}, {"fp64", 7.8e12}};
  v100.memory_bandwidth = 0.9e12;
  v100.inside.bandwidth = 150e9;
  v100.across.bandwidth = 12.5e9;
  v100.ranks_per_machine = 16;
  v100.efficiency.flops = 0.62;
  v100.source = "NVIDIA V100 SXM data sheet (NVLink 300 GB/s both ways); DGX-2 with 16 GPUs and 8 cards of 100 Gbit/s";
  return {v100, a100, h100, h200};
}

}  // namespace

const std::vector<Hardware>& known_hardware() {
  static const std::vector<Hardware> known = make_known();
  return known;
}

}  // namespace zt
