//go:build !float64

package model

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
)

// A model that was drawn anew is saved as it is; each layer draws for itself, and
// a loaded one draws the same.
func TestRedrawnModelIsSaved(t *testing.T) {
	c := with(tiny(Decoder, "performer"), func(c *Config) { c.Layers, c.Set = 2, map[string]string{"redraw": "5"} })
	drawn := func(m *Model) (all []float32) {
		for _, p := range m.Constants().All() {
			all = append(all, p.Data...)
		}
		return all
	}
	m, key := made(t, c), rng.New(9)
	redraw := func(m *Model, updates int) []float32 {
		if err := m.Redraw(key, updates); err != nil {
			t.Fatal(err)
		}
		return drawn(m)
	}
	first := drawn(m)
	for _, updates := range []int{0, 1, 4, 6} {
		if !slices.Equal(first, redraw(m, updates)) {
			t.Errorf("features change after %d updates", updates)
		}
	}
	five := redraw(m, 5)
	if slices.Equal(first, five) || slices.Equal(five[:len(five)/2], five[len(five)/2:]) {
		t.Error("features are not drawn anew for each layer")
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(drawn(loaded), five) {
		t.Error("the file has other features")
	}
	if ten := redraw(loaded, 10); slices.Equal(ten, five) || !slices.Equal(ten, redraw(m, 10)) {
		t.Error("a loaded model draws other features")
	}
}

func tensorOf(t *testing.T, name string, shape ...int) *array.Array {
	t.Helper()
	n := 1
	for _, d := range shape {
		n *= d
	}
	a, err := array.New(name, make([]float32, n), shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLoadRefuses(t *testing.T) {
	weights := func(change func(map[string]*array.Array, map[string]string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { rewrite(t, dir, change) }
	}
	config := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, ConfigFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), old) {
				t.Fatalf("config.json has no %s", old)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		change func(*testing.T, string)
		want   string
	}{
		{weights(func(a map[string]*array.Array, _ map[string]string) { delete(a, "norm.bias") }), "model.safetensors: norm.bias: no such tensor"},
		{weights(func(a map[string]*array.Array, _ map[string]string) { a["x"] = tensorOf(t, "x", 1) }), `model.safetensors: parameter "x": not in this model`},
		{weights(func(a map[string]*array.Array, _ map[string]string) { a["norm.bias"] = tensorOf(t, "norm.bias", 13) }), "norm.bias: shape is [13], the configuration needs [12]"},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			a["norm.bias"], _ = array.New("norm.bias", make([]int32, 12), 12)
		}), "norm.bias: dtype is i4"},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			x := make([]float32, 12)
			x[7] /= x[7]
			a["norm.bias"], _ = array.New("norm.bias", x, 12)
		}), "norm.bias: element 7 is NaN"},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			x := make([]float32, 11*12)
			x[40] = float32(math.Inf(1))
			a["embed.weight"], _ = array.New("embed.weight", x, 11, 12)
		}), "embed.weight: element 40 is +Inf"},
		{weights(func(_ map[string]*array.Array, m map[string]string) { m["version"] = "2" }), `version: is "2", 1 is read`},
		{weights(func(_ map[string]*array.Array, m map[string]string) { delete(m, "version") }), `version: is "", 1 is read`},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			clear(a)
			a["x"] = tensorOf(t, "x", 100000)
		}), "model.safetensors: weights: have 1 tensors, the configuration needs one at least for each of 2 layers"},
		{config(`"version": 1`, `"version": 2, "gates": 3`), "config.json: version: is 2, 1 is read"},
		{config(`"version": 1,`, ``), "config.json: version: is missing"},
		{config(`"version": 1,`, `"version": 2, "task": "copy", "model": {},`), "config.json: is the configuration of a run: read its folder ckpt/best, or the run by farfield.Open"},
		{config(`"width"`, `"breadth"`), `config.json: unknown field "breadth"`},
		{config(`"width": 12`, `"width": 13`), "config.json: heads: 3 do not divide width 13"},
		{config(`"width": 12`, `"width": 15`), "shape is [11 12], the configuration needs [11 15]"},
		{config(`"width": 12`, `"width": 1200`), "model.safetensors: weights: have "},
		{config(`fastmax`, `fastmaxx`), `mechanism "fastmaxx": unknown`},
		{config(`{`, ``), "config.json: "},
		{func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, ConfigFile)) }, "config.json: no such file"},
		{func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, WeightsFile)) }, "model.safetensors: no such file"},
		{func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, WeightsFile), 5000) }, "model.safetensors: "},
	} {
		dir := t.TempDir()
		if err := made(t, tiny(Decoder, "fastmax")).Save(dir); err != nil {
			t.Fatal(err)
		}
		x.change(t, dir)
		for _, p := range []nn.Precision{nn.Float32, nn.Int8} {
			_, err := LoadIn(dir, p, nil)
			if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: error is %v, want one line with %q", p, err, x.want)
			}
		}
	}
}

// FuzzModel reads any bytes as a configuration and weights. They take the memory of
// weights that are there, not of those that are claimed.
func FuzzModel(f *testing.F) {
	for _, name := range []string{"fastmax", "performer", "mamba-2"} {
		dir := f.TempDir()
		m, err := New(tiny(Decoder, name), rng.New(1))
		if err != nil {
			f.Fatal(err)
		}
		if err := m.Save(dir); err != nil {
			f.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(dir, ConfigFile))
		if err != nil {
			f.Fatal(err)
		}
		weights, err := os.ReadFile(filepath.Join(dir, WeightsFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config, weights)
		f.Add(bytes.Replace(config, []byte(`"layers": `), []byte(`"layers": 99999`), 1), weights)
		f.Add(bytes.Replace(config, []byte(`"context": `), []byte(`"context": 99999`), 1), weights)
	}
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		n := check.AllocatedBytes(func() {
			c, err := parseConfigFile(config, nil)
			if err != nil {
				return
			}
			if w, err := safetensors.New(bytes.NewReader(weights), int64(len(weights))); err == nil {
				_, _ = readModel(w, c, nn.Float32)
				_, _ = readModel(w, c, nn.Int8)
			}
		})
		if n > claims+512*int64(len(config)+len(weights)) {
			t.Errorf("%d and %d bytes are read in %d bytes of memory", len(config), len(weights), n)
		}
	})
}

func TestSaveAndLoad(t *testing.T) {
	for name, c := range cases() {
		dir := filepath.Join(t.TempDir(), "deep", "er")
		m := made(t, c)
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		b := batch(c, 1, 2, 5, true)
		if !slices.Equal(logits(t, m, b), logits(t, got, b)) {
			t.Errorf("%s: a loaded model gives other bits", name)
		}
		// Nothing is lost in a file of double precision.
		rewriteDouble(t, filepath.Join(dir, WeightsFile))
		if got, err = Load(dir); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(logits(t, m, b), logits(t, got, b)) {
			t.Errorf("%s: weights in double precision give other bits", name)
		}
		for _, p := range []nn.Precision{nn.BFloat16, nn.Int8} {
			few, err := LoadIn(dir, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := made(t, c)
			if err := want.Compress(p); err != nil {
				t.Fatal(err)
			}
			if few.Precision() != p || few.WeightSum() != want.WeightSum() || !slices.Equal(logits(t, few, b), logits(t, want, b)) {
				t.Errorf("%s: a model that is read in %v is not the compressed one", name, p)
			}
		}
	}
}

// rewriteDouble replaces the arrays of a file by the same numbers in double precision.
func rewriteDouble(t *testing.T, path string) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []*array.Array
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := a.Float64()
		if err != nil {
			t.Fatal(err)
		}
		if a, err = array.New(name, x, a.Shape...); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	metadata := f.Metadata()
	if err := atomicfile.Write(path, func(w io.Writer) error { return safetensors.Write(w, list, metadata) }); err != nil {
		t.Fatal(err)
	}
}
