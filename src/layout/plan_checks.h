// Whether flags, model and layout go together. Every refusal names the flag, what was found and
// what was expected.
#pragma once

#include "layout/layout_plan.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kCannotRoute{"routed_cannot"};

// What can be told before a layout is known. Errors: base::kInvalidArgument, kMaxModelLen.
base::Status CheckOptions(const EngineOptions& options, const model::ModelConfig& config);
// --mode routed: experts can come only where ranks lack some. Errors: kCannotRoute.
base::Status CheckRouted(const EngineOptions& options, const Layout& layout);
// --record-routing. Errors: base::kInvalidArgument.
base::Status CheckRecording(const EngineOptions& options, const model::ModelConfig& config,
                            const LayoutDraft& plan);
// Refusals of --link-gbps and of slow copies of KV, which platforms without real links share.
base::Status LinkTrialRefused(const EngineOptions& options);
base::Status KvTrialRefused();
// Trials and prices of links, on the plan's machine and layout. Errors: base::kInvalidArgument.
base::Status CheckLinks(const EngineOptions& options, const LayoutDraft& plan);
// --pool-requests. Errors: base::kInvalidArgument.
base::Status CheckRequests(const EngineOptions& options, const LayoutDraft& plan);
// KV below the devices, of a plan that knows its ranks. Errors: kv::kKvFileInvalid,
// kOffloadingSize, kKvFileSize.
base::Status CheckTier(const EngineOptions& options, const LayoutPlan& plan);

}  // namespace forebay::layout
