//===- MinCut.h - The cheapest cut between two nodes of a graph -*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_MINCUT_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_MINCUT_H

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace trainc {

/// A directed graph whose edges have capacities. E. A. Dinic, "Algorithm for solution of a
/// problem of maximum flow in networks with power estimation", 1970.
class FlowGraph {
public:
  static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

  size_t addNode() {
    edgesOf.emplace_back();
    return edgesOf.size() - 1;
  }

  void addEdge(size_t from, size_t to, int64_t capacity) {
    edgesOf[from].push_back(edges.size());
    edges.push_back({to, capacity});
    edgesOf[to].push_back(edges.size());
    edges.push_back({from, 0});
  }

  /// Cuts `source` from `sink` at the least sum of capacities, and where that is
  /// nearest to the sink. Returns which nodes are on the sink's side. A path of
  /// unlimited edges alone must not lead from one to the other.
  std::vector<bool> cut(size_t source, size_t sink) {
    while (findDistances(source, sink)) {
      next.assign(edgesOf.size(), 0);
      while (augment(source, sink)) {
      }
    }
    // What can still reach the sink.
    std::vector<bool> reaches(edgesOf.size(), false);
    std::vector<size_t> stack{sink};
    reaches[sink] = true;
    while (!stack.empty()) {
      size_t node = stack.back();
      stack.pop_back();
      for (size_t edge : edgesOf[node]) {
        size_t before = edges[edge].to;
        if (edges[edge ^ 1].capacity == 0 || reaches[before])
          continue;
        reaches[before] = true;
        stack.push_back(before);
      }
    }
    return reaches;
  }

private:
  struct Edge {
    size_t to;
    int64_t capacity; // what is left of it; edge ^ 1 leads back
  };

  /// Edges from the source to each node; false if none lead to the sink.
  bool findDistances(size_t source, size_t sink) {
    distance.assign(edgesOf.size(), -1);
    distance[source] = 0;
    std::vector<size_t> queue{source};
    for (size_t i = 0; i < queue.size(); ++i)
      for (size_t edge : edgesOf[queue[i]]) {
        size_t to = edges[edge].to;
        if (edges[edge].capacity == 0 || distance[to] >= 0)
          continue;
        distance[to] = distance[queue[i]] + 1;
        queue.push_back(to);
      }
    return distance[sink] >= 0;
  }

  /// Sends flow along one shortest path; false if there is none left.
  bool augment(size_t source, size_t sink) {
    std::vector<size_t> path;
    for (size_t node = source; node != sink;) {
      size_t &i = next[node];
      while (i < edgesOf[node].size() && !leadsOn(node, edgesOf[node][i]))
        ++i;
      if (i < edgesOf[node].size()) {
        path.push_back(edgesOf[node][i]);
        node = edges[path.back()].to;
        continue;
      }
      if (path.empty())
        return false;
      node = edges[path.back() ^ 1].to; // a dead end
      ++next[node];
      path.pop_back();
    }
    int64_t flow = unlimited;
    for (size_t edge : path)
      flow = std::min(flow, edges[edge].capacity);
    for (size_t edge : path) {
      if (edges[edge].capacity != unlimited)
        edges[edge].capacity -= flow;
      if (edges[edge ^ 1].capacity != unlimited)
        edges[edge ^ 1].capacity += flow;
    }
    return true;
  }

  bool leadsOn(size_t node, size_t edge) const {
    return edges[edge].capacity > 0 &&
           distance[edges[edge].to] == distance[node] + 1;
  }

  std::vector<Edge> edges;
  std::vector<std::vector<size_t>> edgesOf;
  std::vector<int64_t> distance;
  std::vector<size_t> next; // of each node the first edge that may lead on
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_MINCUT_H
