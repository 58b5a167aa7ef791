// Package token converts text to tokens and back. A vocabulary is the 256 bytes, which
// encode any text, the characters of a text, numbered from 0 by code point, or the tokens of
// a tokenizer.
// Errors name a character outside the vocabulary and its offset. docs/formats.md
// describes the file.
//
// Tokens are int32 numbers 0 ≤ t < Size. Offsets in errors are bytes from 0. Decoding
// inverts encoding.
package token
