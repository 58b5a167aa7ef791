// Package score measures how well a model predicts a text, line by line. A line that the
// earlier lines do not predict takes many bits. The recurrent state of the model
// remembers the text. With a streaming mechanism a text may have any length, and may grow
// while it is read.
//
// Bits are base-2 logarithms of one over the probability of a token. An uncompressed file
// has 8 bits a byte. A line includes its line break. Characters outside the vocabulary,
// and snapshots of a model with other weights, are errors.
package score
