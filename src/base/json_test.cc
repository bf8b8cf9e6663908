#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace forebay::base {
namespace {

TEST(JsonWriter, WritesNestedValues) {
  std::string out;
  JsonWriter w(&out);
  w.BeginObject()
      .Key("a")
      .Int(-1)
      .Key("b")
      .BeginArray()
      .String("x\n\"")
      .Null()
      .Bool(true)
      .EndArray();
  w.Key("c").Double(0.1).Key("d").BeginObject().EndObject().EndObject();
  EXPECT_EQ(out, R"({"a":-1,"b":["x\n\"",null,true],"c":0.1,"d":{}})");
}

TEST(JsonWriter, NumbersReadBackTheSame) {
  std::string out;
  JsonWriter w(&out);
  w.BeginArray()
      .Float(0.1f)
      .Double(1e300)
      .UInt(~0ull)
      .Double(std::numeric_limits<double>::infinity())
      .EndArray();
  EXPECT_EQ(out, "[0.1,1e+300,18446744073709551615,null]");
}

TEST(JsonWriter, RepairsBadUtf8) {
  std::string out;
  AppendJsonString(&out, "a\xC3(\xF0\x9F\x98\x80\xED\xA0\x80\x01");
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD(\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\u0001\"");
}

TEST(ParseJson, RefusesBadDocumentsWithAMessage) {
  simdjson::dom::parser parser;
  EXPECT_EQ(ParseJson(parser, "{\"a\":").status().code(), kJsonInvalid);
  EXPECT_FALSE(ParseJson(parser, "{} {}").ok());
  EXPECT_FALSE(ParseJson(parser, "").ok());
  EXPECT_TRUE(ParseJson(parser, " [1] ").ok());
}

TEST(ReadFile, NamesTheFile) {
  EXPECT_NE(ReadFile("/nonexistent/x").status().message().find("/nonexistent/x"),
            std::string::npos);
  EXPECT_FALSE(ReadFile("/").ok());
}

}  // namespace
}  // namespace forebay::base
