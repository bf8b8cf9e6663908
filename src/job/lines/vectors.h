// What becomes of pooled prompts: embeddings, scores of texts by their angles, and what a head says
// of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "job/lines/parsed_line.h"

namespace forebay::job {

// A pooled prompt as the line wants it: cut to its first dimensions, then normalised.
std::vector<float> VectorOf(std::span<const float> pooled, const VectorStyle& style);

// The cosine of each text of the second kind with that of the first kind that belongs to it: the
// only one, or the one of the same index. Sums are in double, in ascending order.
// REQUIRES: style.queries is 1 or half of the vectors.
std::vector<double> CosinesOf(std::span<const std::vector<float>> pooled, const VectorStyle& style);

// What a head says of a text, a number a label: softmax, sigmoid or as it is, as the labels' rule
// and the line say. REQUIRES: style.labels.
std::vector<double> ProbabilitiesOf(std::span<const float> numbers, const VectorStyle& style);

// The scores of a line of kScore or kRerank: the head's of its pairs, or the cosines.
std::vector<double> ScoresOf(std::span<const std::vector<float>> pooled, const VectorStyle& style);

// OpenAI's `encoding_format` base64: the numbers' bytes, little-endian.
std::string Base64(std::span<const float> numbers);

}  // namespace forebay::job
