// Package tokenizer converts text to the token ids of published models, and back. It reads
// the files that come with a model: tokenizer.json, vocab.txt, vocab.json with merges.txt,
// and SentencePiece's tokenizer.model. Its models are WordPiece, BPE over bytes or
// characters, and Unigram. A component of tokenizer.json that the package does not have is
// refused by name. docs/pretrained.md lists the files.
//
// Offsets are bytes of the input from 0. Bytes that are not UTF-8 reach the model as they
// are. Truncation and padding of tokenizer.json are not applied. TruncationSide returns the
// direction of the first. A Tokenizer is immutable, and its methods may be called concurrently.
package tokenizer
