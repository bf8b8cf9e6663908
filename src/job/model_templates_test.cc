#include "job/model_templates.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace forebay::job {
namespace {

namespace fs = std::filesystem;

class ModelTemplatesTest : public testing::Test {
 protected:
  ModelTemplatesTest() : folder_(fs::path(testing::TempDir()) / "model_templates_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "additional_chat_templates");
  }
  ~ModelTemplatesTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  ModelTemplates Load(const std::string& config, const std::string& given = "") {
    auto loaded =
        ModelTemplates::Load({.path = folder_.string(), .config = config, .given = given});
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return std::move(*loaded);
  }
  // What is rendered, or the error's code.
  static std::string Text(const ModelTemplates& templates, bool tools = false) {
    const auto rendered = templates.Render({.messages_json = R"([{"role":"user","content":"hi"}])",
                                            .tools_json = tools ? "[{}]" : ""});
    return rendered.ok() ? rendered->text : rendered.status().code().name;
  }

  const fs::path folder_;
};

constexpr char kList[] =
    R"({"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]})";

TEST_F(ModelTemplatesTest, FilesComeBeforeTheConfiguration) {
  EXPECT_EQ(Text(Load(kList)), "D");
  EXPECT_EQ(Text(Load(kList), true), "T");
  Write("additional_chat_templates/tool_use.jinja", "FT");
  EXPECT_EQ(Text(Load(kList)), "D");
  EXPECT_EQ(Text(Load(kList), true), "FT");
  Write("chat_template.jinja", "F");
  EXPECT_EQ(Text(Load(kList)), "F");
  EXPECT_EQ(Text(Load(kList), true), "FT");
  EXPECT_EQ(Load(kList).Names(),
            "chat_template.jinja, with tools additional_chat_templates/tool_use.jinja");
  // One template file is for all requests, whatever the configuration has for tools.
  fs::remove(folder_ / "additional_chat_templates/tool_use.jinja");
  EXPECT_EQ(Text(Load(kList), true), "F");
  EXPECT_EQ(Text(Load(kList, "{{ 'given' }}"), true), "given");
}

TEST_F(ModelTemplatesTest, ATemplateThatCannotBeReadIsAnErrorOfItsChatsAlone) {
  const ModelTemplates templates = Load(
      R"({"chat_template":[{"name":"default","template":"{{ .System }}"},{"name":"tool_use","template":"T"}]})");
  EXPECT_EQ(Text(templates), "template_syntax");
  EXPECT_EQ(Text(templates, true), "T");
  const std::string large = "{\"chat_template\":\"" + std::string(2 << 20, 'x') + "\"}";
  EXPECT_EQ(Text(Load(large)), "template_limit");
  const auto given = ModelTemplates::Load({.given = "{% if %}"});
  EXPECT_EQ(given.status().code().name, std::string("template_syntax"));
}

TEST_F(ModelTemplatesTest, AListWithoutADefaultIsForTools) {
  const ModelTemplates templates = Load(
      R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"rag","template":"R"}]})");
  EXPECT_EQ(Text(templates, true), "T");
  EXPECT_EQ(Text(templates), "chat_template_missing");
  const auto refused = templates.Render({.messages_json = R"([{"role":"user","content":"hi"}])"});
  EXPECT_NE(refused.status().message().find("it has: tool_use, rag"), std::string::npos);
  EXPECT_EQ(Text(Load("")), "chat_template_missing");
  EXPECT_EQ(Load("").Names(), "none");
}

}  // namespace
}  // namespace forebay::job
