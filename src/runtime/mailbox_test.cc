#include "runtime/mailbox.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/testing/on_both_runtimes.h"

namespace forebay::runtime {
namespace {

struct Message {
  int sender, number;
};

using MailboxTest = OnBothRuntimes;
FB_ON_BOTH_RUNTIMES(MailboxTest);

TEST_P(MailboxTest, KeepsOrderWithinItsBound) {
  Run([](Runtime& runtime) {
    Mailbox<Message> box(runtime, "box", 3);
    const auto sender = runtime.Spawn({.name = "sender"}, [&] {
      for (int i = 0; i < 100; ++i) EXPECT_TRUE(box.Send({0, i}));
      box.Close();
    });
    for (int i = 0; i < 100; ++i) {
      EXPECT_LE(box.size(), 3u);
      EXPECT_EQ(box.Receive().value().number, i);
    }
    EXPECT_FALSE(box.Receive());
    EXPECT_FALSE(box.Send({0, 100}));
  });
}

TEST_P(MailboxTest, TimesOut) {
  Run([](Runtime& runtime) {
    Mailbox<int> box(runtime, "box", 1);
    EXPECT_FALSE(box.Receive(1000));
    EXPECT_TRUE(box.Send(1, 1000));
    const TimeNs start = runtime.Now();
    EXPECT_FALSE(box.Send(2, 1000));
    EXPECT_GE(runtime.Now() - start, 1000);
    EXPECT_EQ(box.Receive(0), 1);
  });
}

TEST_P(MailboxTest, CloseWakesReceiversAndSenders) {
  Run([](Runtime& runtime) {
    Mailbox<int> empty(runtime, "empty", 1), full(runtime, "full", 1);
    full.Send(1);
    const auto receiver =
        runtime.Spawn({.name = "receiver"}, [&] { EXPECT_FALSE(empty.Receive()); });
    const auto sender = runtime.Spawn({.name = "sender"}, [&] { EXPECT_FALSE(full.Send(2)); });
    runtime.Sleep(100'000);
    empty.Close();
    full.Close();
    sender->Join();
    EXPECT_EQ(full.Receive(), 1);
    EXPECT_FALSE(full.Receive());
  });
}

TEST_P(MailboxTest, ManySendersAndReceiversLoseNothing) {
  Run(
      [](Runtime& runtime) {
        constexpr int kSenders = 3, kEach = 200;
        Mailbox<Message> box(runtime, "box", 4);
        std::vector<std::unique_ptr<Task>> senders, receivers;
        std::vector<std::vector<Message>> received(2);
        for (auto& messages : received) {
          receivers.push_back(runtime.Spawn({.name = "receiver"}, [&] {
            while (const auto message = box.Receive()) messages.push_back(*message);
          }));
        }
        for (int s = 0; s < kSenders; ++s) {
          senders.push_back(runtime.Spawn({.name = "sender"}, [&, s] {
            for (int i = 0; i < kEach; ++i) box.Send({s, i});
          }));
        }
        senders.clear();
        box.Close();
        receivers.clear();
        EXPECT_EQ(received[0].size() + received[1].size(), static_cast<size_t>(kSenders * kEach));
        for (const auto& messages : received) {
          std::vector<int> last(kSenders, -1);
          for (const Message& message : messages) {
            EXPECT_GT(message.number, last[message.sender]);  // one sender's messages stay in order
            last[message.sender] = message.number;
          }
        }
      },
      10);
}

}  // namespace
}  // namespace forebay::runtime
