// Checks and reshapes a request's messages before a template sees them.
#pragma once

#include "text/chat_template.h"
#include "text/jinja/value.h"

namespace forebay::text {

// What a template wants of messages in the style kOpenAi.
struct MessageForm {
  bool keep_parts = false;      // a content of parts stays one; else it becomes one text
  bool text_arguments = false;  // arguments of tool calls are JSON text; else objects
  bool fills_content = false;   // a message that calls tools and has no content gets an empty one
};

// `messages` is what JSON gave. Null keys are dropped and reasoning is given all its names, as
// transformers does. In the style kOpenAi contents and arguments get the form; arguments that are
// absent, "" or "null" become {}, as in vLLM; members that clients write empty (tool_calls,
// function_call, refusal, audio) are dropped.
base::Result<jinja::Value> PrepareMessages(jinja::Arena& arena, const jinja::Value& messages,
                                           MessageStyle style, const MessageForm& form);

// Appends `tag` to the last message's text, so that the rendered text can be cut there.
base::Result<jinja::Value> TagLastMessage(jinja::Arena& arena, const jinja::Value& messages,
                                          std::string_view tag);

}  // namespace forebay::text
