package golden

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/suite"
)

// FuzzFolder holds any bytes as a golden file of both formats, beside any index. A
// file that does not fit is a failed case.
func FuzzFolder(f *testing.F) {
	const name = "linear_recurrent"
	data, err := os.ReadFile(filepath.Join("testdata", "zoo", name+".npz"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`[{"name":"`+name+`","group":"linear","tolo":1e-5}]`), data)
	f.Add([]byte(`[]`), []byte("PK"))
	f.Fuzz(func(t *testing.T, idx, data []byte) {
		if len(data) > 1<<16 {
			return // what is computed takes the time that its shapes ask for
		}
		dir := t.TempDir()
		for name, b := range map[string][]byte{"index.json": idx, name + ".npz": data, "other.npz": data} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		_ = Run(dir, func(Case) {})
	})
}

// A golden file that lacks an array, or has one of another shape or type, is no reason
// to crash.
func TestFilesThatDoNotFit(t *testing.T) {
	for _, folder := range []string{"poly", "zoo"} {
		files, err := filepath.Glob(filepath.Join("testdata", folder, "*.npz"))
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		idx, err := os.ReadFile(filepath.Join("testdata", folder, "index.json"))
		if err != nil {
			idx = []byte("[]")
		}
		for i, path := range files {
			if !suite.IsLong() && i%4 != 0 {
				continue
			}
			in, err := array.OpenNPZ(path)
			if err != nil {
				t.Fatal(err)
			}
			var arrays []*array.Array
			for _, name := range in.Names() {
				a, err := in.ReadArray(name)
				if err != nil {
					t.Fatal(err)
				}
				arrays = append(arrays, a)
			}
			in.Close()
			dir := t.TempDir()
			hold := func(list []*array.Array, what string) {
				defer func() {
					if r := recover(); r != nil {
						t.Errorf("%s, %s: %v", path, what, r)
					}
				}()
				to := filepath.Join(dir, filepath.Base(path))
				err := atomicfile.Write(to, func(w io.Writer) error { return array.WriteNPZ(w, list) })
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, "index.json"), idx, 0o666)
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = Run(dir, func(Case) {})
			}
			for j, a := range arrays {
				if strings.HasPrefix(a.Name, "d") || strings.HasPrefix(a.Name, "o_") {
					continue // results are many, and alike
				}
				hold(slices.Delete(slices.Clone(arrays), j, j+1), "without "+a.Name)
				for what, b := range map[string]func() (*array.Array, error){
					"scalar": func() (*array.Array, error) { return array.New(a.Name, []float64{1}) },
					"empty":  func() (*array.Array, error) { return array.New(a.Name, []float64{}, 2, 0, 3) },
					"long":   func() (*array.Array, error) { return array.New(a.Name, make([]float64, 1024), 1024) },
					"zeros":  func() (*array.Array, error) { return array.New(a.Name, []int64{0, 0, 0, 0}, 1, 2, 2, 1) },
				} {
					other, err := b()
					if err != nil {
						t.Fatal(err)
					}
					changed := slices.Clone(arrays)
					changed[j] = other
					hold(changed, a.Name+" is "+what)
				}
			}
		}
	}
}
