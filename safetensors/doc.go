// Package safetensors reads and writes arrays of float32 under names in the safetensors format, in
// which most models are published: weights, codebooks, vectors of texts.
//
// Files are untrusted: every size is checked before it is used, and a file is accepted only if its
// tensors cover every byte of it exactly once. Arrays of other types and of numpy's formats belong to
// the command farfield; weights of a model are read with it by package model or pretrained.
//
// The format is described at https://huggingface.co/docs/safetensors.
package safetensors
