package safetensors

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

func TestReadTypes(t *testing.T) {
	half, err := array.NewBF16("half", []uint16{0x3fc0, 0xc000}, 2)
	if err != nil {
		t.Fatal(err)
	}
	list := []*array.Array{half}
	for name, add := range map[string]func(name string) (*array.Array, error){
		"single": func(name string) (*array.Array, error) { return array.New(name, []float32{1.5, -2}, 2) },
		"double": func(name string) (*array.Array, error) { return array.New(name, []float64{1.5, -2}, 2) },
		"large":  func(name string) (*array.Array, error) { return array.New(name, []float64{1e39}, 1) },
		"whole":  func(name string) (*array.Array, error) { return array.New(name, []int64{1}, 1) },
	} {
		a, err := add(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := safetensors.Write(file, list, nil); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range []string{"single", "double", "half"} {
		if x, err := f.Read(name); err != nil || x.Name != name || !slices.Equal(x.Shape, []int{2}) || !slices.Equal(x.Data, []float32{1.5, -2}) {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
	for name, want := range map[string]string{"large": `tensor "large": `, "whole": `tensor "whole": `, "none": "none"} {
		if x, err := f.Read(name); err == nil || !strings.Contains(err.Error(), want) || x.Data != nil {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
	if n := len(f.Headers()); n != len(list) {
		t.Errorf("%d headers, want %d", n, len(list))
	}
}

// A tensor that cannot be written leaves the file as it was.
func TestWriteRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, list := range map[string][]Tensor{
		`tensor "a": `:   {{Name: "a", Shape: []int{3}, Data: make([]float32, 2)}},
		"b: two tensors": {{Name: "b", Shape: []int{1}, Data: make([]float32, 1)}, {Name: "b", Data: make([]float32, 1)}},
		"__metadata__":   {{Name: "__metadata__", Data: make([]float32, 1)}},
	} {
		if err := Write(path, list, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
			t.Errorf("%s: the file has %q, %v", want, data, err)
		}
	}
}
