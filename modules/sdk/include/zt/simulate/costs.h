// The time that actions take: measured in steps of a trainer, or computed from operations, bytes and the speed of a machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/value.h"
#include "zt/program/rank_program.h"

namespace zt {

// A link between ranks, in one direction. Both directions have this speed at the same time.
struct LinkSpeed {
  double latency = 0;    // seconds of one message
  double bandwidth = 0;  // bytes per second; 0: not known
};

inline constexpr const char* kMeasuredMachine = "measured";

// The parts of peak rates that are assumed to be reached.
struct Efficiency {
  double flops = 1;   // of a layer's matrices
  double memory = 1;  // of memory_bandwidth
  double links = 1;   // of the links' bandwidths
};

// The speed of a machine, for one rank.
struct Hardware {
  std::string name;                     // kMeasuredMachine: the rates are those that steps of a run reached, and no peaks
  std::map<std::string, double> flops;  // per second, by type: "bf16", "fp16", "fp32", "fp64"; a missing type is not known
  double memory_bandwidth = 0;          // bytes per second; 0: not known
  LinkSpeed inside;                     // of a rank to the other ranks of its machine
  LinkSpeed across;                     // of one network card to other machines
  int ranks_per_machine = 1;
  int cards_per_machine = 0;             // network cards that its ranks share; 0: as many as ranks. A rank drives one at a time
  double file_read = 0, file_write = 0;  // bytes per second of its disks, which its ranks share evenly; 0: not known
  double host_copy = 0;                  // bytes per second between host and devices, shared likewise; 0: not known
  double host_memory = 0;                // bytes per second of the host's memory, shared likewise; 0: not known
  Efficiency efficiency;
  double launch = 0;     // seconds of each action beside its operations and bytes
  bool overlaps = true;  // transfers run beside computation; false: they take the time of the rank's core
  std::string backend;   // of axes for which neither script nor command line names one; empty: as for any machine
  std::string source;    // where the numbers are from
  double cards() const { return cards_per_machine > 0 ? cards_per_machine : ranks_per_machine; }
};

// Costs of actions. Plain data: equal on all ranks.
struct Costs {
  // What an action took, on average over ranks, micro-batches and steps.
  struct Measured {
    double compute = 0;      // seconds on the rank
    double transfer = 0;     // seconds after all ranks had arrived; of an action with a queue, of its work there
    int64_t sent_bytes = 0;  // that the action sent; for one that sends more or less, `transfer` is scaled
    // Its operations, and the bytes that it read and wrote. For other ones `compute` is scaled: by the operations, if it had
    // some. 0: not known.
    double flops = 0, memory_bytes = 0;
    int64_t moved_bytes = 0;  // that it read from files, wrote to files and copied; `transfer` is scaled likewise
  };
  Hardware hardware;                         // for actions that were not measured
  std::map<std::string, Measured> measured;  // by measured_name
};

// Returns the name under which an action is measured: its kind, what it moves ("FETCH state head"), and the name of its target,
// without micro-batch and other attributes.
std::string measured_name(const Action& action, const ModelInfo& model);

// Return a table with all fields, for files and scripts, and read it. Throw Misuse for a wrong field.
Value to_value(const Costs& costs);
Costs parse_costs(const Value& value);

// Returns the rates of the machine in words: "8 ranks per machine, bf16 989 TFLOP/s x 0.55, ...". `type`: that of the arithmetic.
std::string describe(const Hardware& hardware, const std::string& type);

// Returns the costs that a name stands for: a machine that hardware_names() lists, or a JSON file (a name that ends in ".json")
// with what to_value returns. Throws Misuse, with the nearest name, for another.
Costs find_costs(const std::string& name);
std::vector<std::string> hardware_names();

}  // namespace zt
