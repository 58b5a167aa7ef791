package problem

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// NewArray returns the array data [shape...] with a name. The shape must fit the data.
func NewArray(name string, data []float32, shape []int) *array.Array {
	a, err := array.New(name, data, shape...)
	if err != nil {
		panic(err)
	}
	return a
}

// OpenArrays opens a file of arrays, whose format its suffix tells. It returns an error if the
// suffix is unknown or the file is invalid.
func OpenArrays(path string) (array.Source, error) {
	switch filepath.Ext(path) {
	case ".npz":
		f, err := array.OpenNPZ(path)
		if err != nil {
			return nil, err
		}
		return f, nil
	case ".safetensors":
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s: the suffix is %q, needs .npz or .safetensors", path, filepath.Ext(path))
}

// WriterFor returns the function that writes arrays in the format of path's suffix. It
// returns an error if the suffix is unknown, or if path is one of inputs or cannot be
// created.
func WriterFor(path string, inputs ...string) (func(io.Writer, []*array.Array) error, error) {
	if err := env.CheckOutput(path, inputs...); err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".npz":
		return array.WriteNPZ, nil
	case ".safetensors":
		return func(w io.Writer, list []*array.Array) error { return safetensors.Write(w, list, nil) }, nil
	}
	return nil, fmt.Errorf("%s: the suffix is %q, needs .npz or .safetensors", path, filepath.Ext(path))
}
