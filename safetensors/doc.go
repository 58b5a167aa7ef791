// Package safetensors reads and writes files of named tensors in the
// safetensors format: eight bytes with the length of a header, a header in JSON,
// the elements in little-endian C order. One tensor is read without the others,
// and a file is believed only after every byte of it is accounted for.
//
// The format is described at https://huggingface.co/docs/safetensors.
package safetensors
