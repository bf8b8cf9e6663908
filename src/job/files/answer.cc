#include "job/files/answer.h"

#include "base/json.h"

namespace forebay::job {
namespace {

void AppendMember(const simdjson::dom::key_value_pair& member, std::string* out) {
  *out += member.key;
  *out += '=';
  *out += simdjson::minify(member.value);
  *out += '\n';
}

void AppendBody(simdjson::dom::object body, std::string* out) {
  for (const auto& member : body) {
    simdjson::dom::object usage;
    if (member.key == "created") continue;
    if (member.key != "usage" || member.value.get(usage)) {
      AppendMember(member, out);
      continue;
    }
    for (const auto& count : usage) {
      if (count.key != "prompt_tokens_details") AppendMember(count, out);
    }
  }
}

}  // namespace

base::Result<std::string> AnswerOf(simdjson::dom::parser& parser, std::string_view line) {
  FB_ASSIGN_OR_RETURN(const simdjson::dom::element parsed, base::ParseJson(parser, line));
  std::string answer;
  simdjson::dom::object object, response, body;
  if (parsed.get(object) || object["response"].get(response))
    return base::Status(base::kJsonInvalid, "a result line has no object \"response\"");
  for (const auto& member : object) {
    if (member.key != "response") AppendMember(member, &answer);
  }
  for (const auto& member : response) {
    member.key == "body" && !member.value.get(body) ? AppendBody(body, &answer)
                                                    : AppendMember(member, &answer);
  }
  return answer;
}

}  // namespace forebay::job
