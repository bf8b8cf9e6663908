// Index of a kept file: what stands whole is found, what is damaged is not, what is not ours is
// refused.
#include "kv/tier/kept_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/rng.h"
#include "base/testing/temporary_folder.h"

// Files that were synced, in place of the C library's: what a power cut leaves cannot be tried.
static std::atomic<int> syncs = 0;
extern "C" int fsync(int descriptor) {
  ++syncs;
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace forebay::kv {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const KeptIdentity kOurs{"model 01, class a", "ours"}, kOther{"model 02, class b", "theirs"};

KeptRecord Record(BlockId below, int32_t group, uint64_t key, uint64_t checksum = 9) {
  return {.below = below, .group = group, .key = {key, key + 1}, .checksum = checksum};
}

std::vector<KeptRecord> Read(std::string_view bytes) {
  std::vector<KeptRecord> records;
  auto reader = KeptReader::Open(bytes, "x.index");
  if (!reader.ok()) return records;
  while (const auto record = reader->Next()) records.push_back(*record);
  return records;
}

TEST(KeptIndex, ReadsWhatWasWritten) {
  const std::string bytes = KeptHead(kOurs) + KeptLine(Record(3, 0, 7)) + KeptLine(Record(1, 1, 8));
  EXPECT_THAT(Read(bytes), ElementsAre(Record(3, 0, 7), Record(1, 1, 8)));
  const auto reader = KeptReader::Open(bytes, "x.index");
  EXPECT_EQ(reader->identity().of, kOurs.of);
  EXPECT_EQ(reader->identity().name, kOurs.name);
  for (const std::string& torn : {std::string(), std::string("FBKVIDX"), std::string(200, '\0'),
                                  bytes.substr(0, 9), bytes.substr(0, 20)}) {
    const auto cut = KeptReader::Open(torn, "x.index");
    ASSERT_TRUE(cut.ok()) << torn.size();
    EXPECT_TRUE(cut->torn()) << torn.size();
  }
  EXPECT_FALSE(reader->torn());
  EXPECT_THAT(KeptReader::Open("{\"a\":1}              ", "x.index").status().message(),
              AllOf(HasSubstr("x.index"), HasSubstr("FBKVIDX2")));
}

// Cut anywhere, records before the cut stand; damaged anywhere, no record is another one.
TEST(KeptIndex, DamageCostsTheRecordsInIt) {
  std::string bytes = KeptHead(kOurs);
  const size_t head = bytes.size();
  std::vector<KeptRecord> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(Record(i, 0, 100 + static_cast<uint64_t>(i)));
    bytes += KeptLine(all.back());
  }
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto records = Read(bytes.substr(0, cut));
    EXPECT_EQ(records.size(), cut < head ? 0 : (cut - head) / 40);
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto records = Read(damaged);
    EXPECT_EQ(records.size(), at < head ? 0 : 4) << at;
    for (const KeptRecord& record : records)
      EXPECT_EQ(record, all[static_cast<size_t>(record.below)]);
  }
}

class KeptFileTest : public testing::Test {
 protected:
  base::Result<std::unique_ptr<KeptFile>> Open(const KeptIdentity& identity = kOurs,
                                               int32_t num_blocks = 8) {
    return KeptFile::Open(path_, identity, num_blocks, 2, [&] {
      return OpenBlockFile(path_, static_cast<uint64_t>(num_blocks) * kFileAlignment,
                           FileLife::kKept);
    });
  }
  std::string Index() const {
    std::ifstream file(path_ + kIndexSuffix, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const base::TemporaryFolder folder_{std::filesystem::current_path()};
  const std::string path_ = folder_ / "kv";
};

TEST_F(KeptFileTest, TheNextJobFindsBlocksWhosePartsStandUnderOneKey) {
  {
    const auto kept = Open();
    ASSERT_TRUE(kept.ok()) << kept.status().ToString();
    EXPECT_TRUE((*kept)->records().empty());
    // Block 0 is whole; 1 lacks a part; 2 has parts of two keys; 3 was whole and is nobody's; 4 has
    // the key of 0; 5 is whole after it was another one.
    const std::vector<KeptRecord> records = {
        Record(0, 0, 10), Record(0, 1, 10), Record(1, 0, 11),        Record(2, 0, 12),
        Record(2, 1, 13), Record(3, 0, 14), Record(3, 1, 14),        {3, 0, {}, 1},
        {3, 1, {}, 1},    Record(4, 0, 10), Record(4, 1, 10),        Record(5, 0, 15),
        Record(5, 1, 15), Record(5, 0, 16), Record(5, 1, 16, 0x1234)};
    ASSERT_TRUE((*kept)->Append(records).ok());
    EXPECT_EQ(Open().status().code(), kKvFileLocked);
  }
  const auto again = Open();
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_THAT((*again)->records(), ElementsAre(Record(0, 0, 10), Record(0, 1, 10), Record(5, 0, 16),
                                               Record(5, 1, 16, 0x1234)));
  // What is of no use was left out of the new index.
  EXPECT_EQ(Read(Index()).size(), 4u);
}

TEST_F(KeptFileTest, OthersFilesAreRefusedAndNotTouched) {
  {
    const auto kept = Open();
    ASSERT_TRUE(kept.ok());
    ASSERT_TRUE((*kept)->Append(std::vector{Record(0, 0, 10), Record(0, 1, 10)}).ok());
  }
  const std::string before = Index();
  const base::Status refused = Open(kOther, 2).status();
  EXPECT_EQ(refused.code(), kKvFileMismatch);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("ours (model 01, class a)"),
                                       HasSubstr("theirs (model 02, class b)")));
  EXPECT_EQ(Index(), before);
  unlink((path_ + kIndexSuffix).c_str());
  const base::Status no_index = Open().status();
  EXPECT_EQ(no_index.code(), kKvFileInvalid);
  EXPECT_THAT(no_index.message(), HasSubstr("no index"));
}

// A crash leaves the begin of an index, or NULs: its blocks are computed again, and it is written
// anew.
TEST_F(KeptFileTest, ATornIndexCostsWhatItSaid) {
  for (const size_t cut : {size_t{0}, size_t{5}, size_t{30}, std::string::npos}) {
    {
      const auto kept = Open();
      ASSERT_TRUE(kept.ok()) << kept.status().ToString();
      ASSERT_TRUE((*kept)->Append(std::vector{Record(0, 0, 10), Record(0, 1, 10)}).ok());
    }
    const std::string whole = Index();
    std::ofstream(path_ + kIndexSuffix, std::ios::binary)
        << (cut == std::string::npos ? std::string(whole.size(), '\0') : whole.substr(0, cut));
    {
      const auto kept = Open();
      ASSERT_TRUE(kept.ok()) << kept.status().ToString();
      EXPECT_TRUE((*kept)->records().empty());
    }
    EXPECT_EQ(Index(), KeptHead(kOurs));
  }
}

// A smaller file has the blocks that lie in it.
TEST_F(KeptFileTest, AnotherSizeKeepsWhatLiesInIt) {
  {
    const auto kept = Open();
    ASSERT_TRUE(kept.ok());
    const std::vector<KeptRecord> records = {Record(1, 0, 10), Record(1, 1, 10), Record(6, 0, 11),
                                             Record(6, 1, 11)};
    ASSERT_TRUE((*kept)->Append(records).ok());
  }
  {
    const auto smaller = Open(kOurs, 4);
    ASSERT_TRUE(smaller.ok());
    EXPECT_THAT((*smaller)->records(), ElementsAre(Record(1, 0, 10), Record(1, 1, 10)));
  }
  EXPECT_EQ((*Open(kOurs, 8))->records().size(), 2u);
}

// Two jobs begin at once: the one that comes too late leaves the other's file alone.
TEST_F(KeptFileTest, AFileThatAnotherJobHasMadeMeanwhileStays) {
  const auto late = KeptFile::Open(path_, kOurs, 8, 2, [&] {
    std::ofstream(path_) << "theirs";
    return base::Result<std::unique_ptr<BlockFile>>(base::Status(kKvFileLocked, "locked"));
  });
  EXPECT_EQ(late.status().code(), kKvFileLocked);
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(path_ + kIndexSuffix));
}

// The same where the late one is of another model, or its index came first: who has the file writes
// the index, and nobody else does.
TEST_F(KeptFileTest, TheIndexIsOfTheJobThatHasTheFile) {
  std::unique_ptr<KeptFile> winner;
  const auto late = KeptFile::Open(path_, kOther, 8, 2, [&] {
    winner = std::move(*Open());
    return OpenBlockFile(path_, 8 * kFileAlignment, FileLife::kKept);
  });
  EXPECT_EQ(late.status().code(), kKvFileLocked);
  ASSERT_TRUE(winner->Append(std::vector{Record(0, 0, 10), Record(0, 1, 10)}).ok());
  winner.reset();
  EXPECT_EQ((*Open())->records().size(), 2u);
  EXPECT_EQ(Open(kOther).status().code(), kKvFileMismatch);
  // An index without a file is what a job left that died at its begin.
  unlink(path_.c_str());
  EXPECT_TRUE((*Open(kOther))->records().empty());
  EXPECT_TRUE(Open(kOther).ok());
}

// Whichever way their steps fall between each other's: the index is of the one that got the file,
// and has what it appended.
TEST_F(KeptFileTest, TwoThatBeginAtOnceLeaveTheIndexOfOne) {
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const KeptIdentity* const identities[] = {&kOurs, &kOther};
    std::unique_ptr<KeptFile> files[2];
    std::barrier begin(2);
    const auto job = [&](int i) {
      begin.arrive_and_wait();
      base::Result<std::unique_ptr<KeptFile>> opened = Open(*identities[i]);
      if (opened.ok()) files[i] = *std::move(opened);
    };
    std::thread other(job, 1);
    job(0);
    other.join();
    const int winner = files[0] == nullptr ? 1 : 0;
    ASSERT_NE(files[winner], nullptr);
    ASSERT_EQ(files[1 - winner], nullptr);
    ASSERT_TRUE(files[winner]->Append(std::vector{Record(0, 0, 10), Record(0, 1, 10)}).ok());
    files[winner].reset();
    const auto again = Open(*identities[winner]);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    ASSERT_EQ((*again)->records().size(), 2u);
    unlink(path_.c_str());
    unlink((path_ + kIndexSuffix).c_str());
  }
}

// After a power cut a file has an index with content beside it: the first is on the disk before the
// file is made, and each later one before it takes the name.
TEST_F(KeptFileTest, AnIndexIsOnTheDiskBeforeItCounts) {
  const int before = syncs;
  const auto kept = KeptFile::Open(path_, kOurs, 8, 2, [&] {
    EXPECT_EQ(syncs, before + 1);
    return OpenBlockFile(path_, 8 * kFileAlignment, FileLife::kKept);
  });
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(syncs, before + 2);
}

TEST_F(KeptFileTest, WhatCouldNotBeMadeLeavesNothing) {
  const auto failed = KeptFile::Open(path_, kOurs, 8, 2, [] {
    return base::Result<std::unique_ptr<BlockFile>>(base::Status(kKvFileNoSpace, "no space"));
  });
  EXPECT_EQ(failed.status().code(), kKvFileNoSpace);
  EXPECT_NE(access((path_ + kIndexSuffix).c_str(), F_OK), 0);
}

}  // namespace
}  // namespace forebay::kv
