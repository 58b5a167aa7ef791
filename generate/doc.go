// Package generate continues texts with a model: a Sampler draws tokens, a
// Generator feeds them back. What the model remembers is the state of its
// attention, so with a mechanism that streams neither the memory nor the time of
// a token grows with the text, and a snapshot of a few hundred kilobytes
// continues it elsewhere to the same bits. Draw draws images level by level, in
// batches.
//
// Temperature divides the logits, in nats; TopK counts tokens and TopP is a
// probability (Holtzman et al. 2020, arXiv 1904.09751). Settings that are not
// possible, and snapshots of a model with other weights, are errors.
package generate
