// Package token turns text into numbers and back. A vocabulary is either the
// 256 bytes, which fit anything, or the characters of a text, numbered from 0 in
// the order of their code points. What a vocabulary does not have is an error that
// says what and where. docs/formats.md has its file.
//
// Tokens are int32 from 0 to the vocabulary's size, which counts tokens; positions in
// errors are bytes from 0. Decoding what encoding gave is the text itself.
package token
