// Package generate samples texts and images from a model. A Sampler draws tokens, a
// Generator feeds them back, and DrawImages draws images level by level in batches.
//
// The recurrent state of the model remembers the text. With a streaming mechanism neither
// the memory nor the time per token grows with the text. A snapshot of one to a
// few megabytes continues the text elsewhere to the same bits.
//
// Temperature divides the logits, in nats. TopK counts tokens; TopP is a probability
// (Holtzman et al. 2020, arXiv 1904.09751). Invalid settings and snapshots of a model
// with other weights are errors.
package generate
