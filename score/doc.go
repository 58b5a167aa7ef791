// Package score measures how well a model predicts a text, line by line: a line that
// the lines before it do not lead to takes many bits. What the model remembers is the
// state of its attention, so with a mechanism that streams a text may be of any length,
// and grow while it is read.
//
// Bits are base-2 logarithms of one over the probability of what came: 8 a byte is what
// a file takes as it is. A line ends behind its line break, which is of it. What the
// vocabulary does not have, and saved scores of a model with other weights, are errors.
package score
