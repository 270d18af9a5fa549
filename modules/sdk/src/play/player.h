// The virtual executor: plays the programs of all ranks without running anything, and finds out in which order and when their
// actions would run. The verifier plays without times; the simulator gives each action one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "play/played_ranks.h"

namespace zt {

enum class Waiting : uint8_t {
  at_once,      // each action waits for its communication: programs that pass do not depend on asynchronous communication
  when_needed,  // as the executor: before the first later action that touches one of its resources
};

// The parts of a rank's links that a transfer needs, from 0 to 1, to run at its full speed.
struct LinkUse {
  double inside = 0;  // to the other ranks of its machine
  double across = 0;  // to other machines
  bool any() const { return inside > 0 || across > 0; }
};

struct ActionTime {
  double compute = 0;   // seconds on the rank itself
  double transfer = 0;  // seconds of each of its calls, from the moment at which all ranks of the communicator have arrived; of
                        // an action with a queue, of its work there
  LinkUse use = {};     // of the calls; without it they share no link, and take this time whatever else is under way
};

struct PlayOptions {
  Waiting waiting = Waiting::at_once;
  // Returns the time of an action. Empty: none takes time.
  // `call`: the index of a communicator in the action's calls; 0 also for a message, and for `compute`.
  std::function<ActionTime(int played, int step, size_t call)> time = {};
  // As BufferOf.
  std::function<Resource(int played, const Resource&)> buffer_of = {};
  int repeats = 1;  // number of steps in a row
};

struct PlaySpan {
  double begin = 0, end = 0;  // seconds
  double length() const { return end - begin; }
};

// What a played rank did in the last of the steps. Times count from the begin of the first step.
struct PlayedLine {
  std::vector<PlaySpan> computes;   // by action
  std::vector<PlaySpan> transfers;  // by action; empty spans for those without
  double begin = 0;                 // of the last step: the end of the step before
  double end = 0;                   // when its last action was over, and all that no resource waits for
};

struct PlayResult {
  std::vector<PlayedLine> lines;  // by played rank; complete only without errors
  std::vector<Refusal> errors;
};

// Errors: those of `played`; ranks of a group that make different calls, ends of a channel that move different messages or differ
// in depth, and ranks that wait for ever. After calls that differ, nothing else is looked for.
PlayResult play(const PlayedRanks& played, const ModelInfo& model, const PlayOptions& options);

}  // namespace zt
