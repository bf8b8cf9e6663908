#include "repro/claim.h"

namespace forebay::repro {

std::span<const Paper> Papers() {
  static const std::vector<Paper> papers = {{"model", ModelClaims()},
                                            {"sidp", SidpClaims()},
                                            {"dwdp", DwdpClaims()},
                                            {"vasuki", VasukiClaims()},
                                            {"shift", ShiftClaims()}};
  return papers;
}

}  // namespace forebay::repro
