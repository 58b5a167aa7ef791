// Package score measures how well a model predicts a text, line by line. A line that the
// earlier lines do not predict takes many bits. A text may have any length, and may grow while it
// is read. What is longer than the trained context is read in windows of it, or with
// Scorer.SetWindow in one recurrent state.
//
// Bits are base-2 logarithms of one over the probability of a token. An uncompressed file
// has 8 bits a byte. A line includes its line break. Characters outside the vocabulary
// are errors.
package score
