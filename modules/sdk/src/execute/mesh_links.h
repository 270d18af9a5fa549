// The links of a rank of a mesh.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "zt/comm/mesh.h"
#include "zt/execute/links.h"

namespace zt {

// What a rank communicates over.
struct LinkNeeds {
  std::set<std::vector<std::string>> axes = {};  // of the programs of all ranks, besides single axes
  std::vector<std::vector<int>> holders = {};    // of this rank's units with several holders: indices along RankPlace::split_axes
  std::vector<Message> messages = {};            // of this rank, in an order in which both ends of a channel can make it
};

class MeshLinks final : public Links {
 public:
  // Makes what is needed. Collective over the mesh, unless nothing is needed: single axes have their communicators already.
  // `mesh`: null means one rank, and every function that returns a way to others throws Misuse. `trainer`: Links::trainer.
  MeshLinks(std::shared_ptr<Mesh> mesh, RankPlace place, const LinkNeeds& needs, int trainer = 0);

  Communicator& comm(const std::vector<std::string>& axes) const override { return *axis(axes).communicator; }
  Communicator& control(const std::vector<std::string>& axes) const override { return *axis(axes).control; }
  Communicator& holders(const Unit& unit) const override;
  Channel& channel(const Message& message) const override;
  at::Device device() const override { return device_; }

 private:
  const Axis& axis(const std::vector<std::string>& axes) const;
  std::shared_ptr<Channel> make_channel(const Message& message) const;

  std::shared_ptr<Mesh> mesh_;
  at::Device device_ = at::kCPU;
  std::map<std::vector<std::string>, std::shared_ptr<Axis>> axes_;
  std::map<std::vector<int>, std::shared_ptr<Communicator>> holders_;
  std::map<Message, std::shared_ptr<Channel>> channels_;
};

}  // namespace zt
