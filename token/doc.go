// Package token converts text to tokens and back. A vocabulary is either the 256 bytes,
// which encode any text, or the characters of a text, numbered from 0 by code point.
// Errors name a character outside the vocabulary and its offset. docs/formats.md
// describes the file.
//
// Tokens are int32 numbers 0 ≤ t < Size. Offsets in errors are bytes from 0. Decoding
// inverts encoding.
package token
