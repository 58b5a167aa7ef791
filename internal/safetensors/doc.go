// Package safetensors reads and writes named tensors in the safetensors format: eight bytes with
// the length of the header, a header in JSON, and elements in little-endian C order. Tensors are
// read one at a time. A file is accepted only if its tensors cover every byte exactly once.
//
// The format is described at https://huggingface.co/docs/safetensors.
package safetensors
