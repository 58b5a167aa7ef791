package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/array"
)

// entry is a tensor in the JSON header.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Write writes the tensors and the metadata, which may be nil. Tensors are sorted by decreasing
// element size, then by name, so that each begins at a multiple of its element size. The bytes do not
// depend on the order of tensors in the slice. Write returns an error, and writes nothing, if a name
// appears twice, is "__metadata__" or is not UTF-8, if the metadata is not UTF-8, if a type cannot be
// written, or if the header is too long. It also returns an error if w fails.
func Write(w io.Writer, tensors []*array.Array, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b *array.Array) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	header, err := EncodeHeader(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := t.Encode(w); err != nil {
			return err
		}
	}
	return nil
}

// EncodeHeader returns the bytes of a file before the data of the tensors, in the given order;
// their number is a multiple of 8. It reads names, types and shapes only, so the tensors need no
// elements. It returns an error if a name appears twice, is "__metadata__" or is not UTF-8, or if
// the header is too long.
func EncodeHeader(tensors []*array.Array, metadata map[string]string) ([]byte, error) {
	keys := make(map[string]any)
	if len(metadata) > 0 {
		for key, value := range metadata {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return nil, fmt.Errorf("__metadata__: %q: %q is not UTF-8", key, value)
			}
		}
		keys["__metadata__"] = metadata
	}
	var end int64
	for _, t := range tensors {
		if t.Name == "__metadata__" || !utf8.ValidString(t.Name) {
			return nil, fmt.Errorf("%q cannot be the name of a tensor", t.Name)
		}
		if keys[t.Name] != nil {
			return nil, fmt.Errorf("%s: two tensors have this name", t.Name)
		}
		n, err := array.CountElements(t.Shape)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		e := entry{DType: dtypeName(t.DType), Shape: t.Shape, Offsets: [2]int64{end, end}}
		if e.DType == "" {
			return nil, fmt.Errorf("%s: dtype is %v", t.Name, t.DType)
		}
		if e.Shape == nil {
			e.Shape = []int{}
		}
		end += int64(n) * int64(t.DType.Size())
		e.Offsets[1] = end
		keys[t.Name] = e
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	text = append(text, bytes.Repeat([]byte(" "), -len(text)&7)...)
	if len(text) > maxHeader {
		return nil, fmt.Errorf("header has %d bytes, at most %d are allowed", len(text), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// dtypeName returns the name of a type in files.
func dtypeName(d array.DType) string {
	for name, t := range readableTypes {
		if t == d {
			return name
		}
	}
	return ""
}
