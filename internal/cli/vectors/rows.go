package vectors

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// IsArrayFile reports whether path has the extension of a file that has only vectors.
func IsArrayFile(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".npy" || ext == ".safetensors"
}

// Rows collects vectors for a file.
type Rows struct {
	Width int
	data  []float32
}

// Add appends vector [Width]; nil is a row of zeros.
func (r *Rows) Add(vector []float32) {
	if vector == nil {
		vector = make([]float32, r.Width)
	}
	r.data = append(r.data, vector...)
}

// Write writes the array vectors [rows,Width] as .npy or .safetensors, as a whole or not
// at all. It returns an error if the file cannot be written.
func (r *Rows) Write(path string) error {
	a, err := array.New(ArrayName, r.data, len(r.data)/r.Width, r.Width)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		if strings.ToLower(filepath.Ext(path)) == ".npy" {
			return array.WriteNPY(w, a)
		}
		return safetensors.Write(w, []*array.Array{a}, nil)
	})
}
