// Where a stream stands, for messages: streams of real devices know.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"

namespace forebay::device {

// To which layer of the model belongs what is enqueued on the stream from here on; -1: to none.
// What stops the stream there names it.
void SetLayer(Stream& stream, int64_t layer);
// "rank 0 compute in layer 3 waits for 'rank 1 for rank 0, channel 5'"; "": the stream has nothing
// to do, or nobody knows. Any thread.
std::string PlaceOf(const Stream& stream);

}  // namespace forebay::device
