package pretrained

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/safetensors"
)

// sharedFolder is the folder of models with references.
const sharedFolder = "../../shared/fixtures/hf"

// fixtureFolders lists the folders with references under root, or skips.
func fixtureFolders(t *testing.T, root string) []string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(root, "*", "ref.npz"))
	if len(found) == 0 {
		t.Skipf("0 folders compared: %s has none", root)
	}
	var dirs []string
	for _, path := range found {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

// reference is the arrays of ref.npz.
type reference struct {
	t *testing.T
	f *array.File
}

func (r reference) floats(name string) []float32 {
	a, err := r.f.ReadArray(name)
	if err != nil {
		return nil
	}
	x, err := a.Float64()
	if err != nil {
		r.t.Fatal(err)
	}
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(x[i])
	}
	return y
}

func (r reference) ids(name string) (ids []int32, shape []int) {
	a, err := r.f.ReadArray(name)
	if err != nil {
		return nil, nil
	}
	x, err := a.Int64()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range x {
		ids = append(ids, int32(v))
	}
	return ids, a.Shape
}

// input returns the input of a reference.
func (r reference) input() *Input {
	in := &Input{Hidden: true}
	if pixels := r.floats("pixel_values"); pixels != nil {
		_, shape, _ := r.f.ReadHeader("pixel_values")
		in.B, in.Pixels = shape[0], pixels
		return in
	}
	ids, shape := r.ids("input_ids")
	in.B, in.N, in.IDs = shape[0], shape[1], ids
	mask, _ := r.ids("attention_mask")
	for _, x := range mask {
		in.Mask = append(in.Mask, x != 0)
	}
	in.Types, _ = r.ids("token_type_ids")
	if ids, shape := r.ids("decoder_input_ids"); ids != nil {
		in.DecoderIDs, in.DecoderN = ids, shape[1]
	}
	return in
}

// compare holds x to want within share of want's largest number.
func compare(t *testing.T, name string, x *array.Array, want []float32, share float64) {
	t.Helper()
	if want == nil {
		return
	}
	if x == nil {
		t.Errorf("%s: is missing", name)
		return
	}
	got, err := x.Float32()
	if err != nil || len(got) != len(want) {
		t.Errorf("%s: has %d elements, want %d (%v)", name, len(got), len(want), err)
		return
	}
	compareNumbers(t, name, got, want, share)
}

func compareNumbers(t *testing.T, name string, got, want []float32, share float64) {
	t.Helper()
	most, worst := largest(want), 0.0
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= worst) {
			worst = d
		}
	}
	if !(worst <= share*most) {
		t.Errorf("%s: differs by %.3g, %.3g of the largest number %.3g", name, worst, worst/most, most)
	}
}

// largest returns the largest magnitude.
func largest(x []float32) (most float64) {
	for _, v := range x {
		most = max(most, math.Abs(float64(v)))
	}
	return most
}

func TestFoldersGiveReferenceOutputsAndGradients(t *testing.T) {
	root := sharedFolder
	if other := os.Getenv("FARFIELD_FOLDERS"); other != "" {
		root = other
	}
	dirs := fixtureFolders(t, root)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			f, err := array.OpenNPZ(filepath.Join(dir, "ref.npz"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r := reference{t, f}
			in := r.input()
			out, err := m.Forward(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "hidden", out.Hidden, r.floats("hidden"), 2e-5)
			compare(t, "decoder_hidden", out.Hidden, r.floats("decoder_hidden"), 2e-5)
			compare(t, "encoder_last_hidden_state", out.EncoderLast, r.floats("encoder_last_hidden_state"), 2e-5)
			compare(t, "last_hidden_state", out.LastHidden, r.floats("last_hidden_state"), 2e-5)
			compare(t, "logits", out.Logits, r.floats("logits"), 2e-5)
			compare(t, "pooler_output", out.Pooled, r.floats("pooler_output"), 2e-5)
			compareGradients(t, m, in, r.floats("do"), dir)
			compareGreedy(t, m, r)
		})
	}
	t.Logf("%d folders compared", len(dirs))
}

// compareGradients holds gradients to grads.safetensors.
func compareGradients(t *testing.T, m *Model, in *Input, do []float32, dir string) {
	t.Helper()
	grads, err := m.Gradients(context.Background(), in, do)
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(dir, "grads.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, all := map[string][]float32{}, 0.0
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		if want[name], err = a.Float32(); err != nil {
			t.Fatal(err)
		}
		all = max(all, largest(want[name]))
	}
	for _, g := range grads {
		w, has := want[g.Name]
		x, err := g.Float32()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !has && largest(x) != 0:
			t.Errorf("d_%s: is not 0, and the reference has none", g.Name)
		case has && largest(w) < 1e-6*all: // of a weight that the output does not depend on, as the biases of keys
			if got := largest(x); got > 1e-6*all {
				t.Errorf("d_%s: is up to %.3g, the reference up to %.3g", g.Name, got, largest(w))
			}
		case has:
			compareNumbers(t, "d_"+g.Name, x, w, 1e-4)
		}
		delete(want, g.Name)
	}
	for name := range want {
		t.Errorf("d_%s: is missing", name)
	}
}

// compareGreedy holds the arg-max continuation of a prompt to the reference.
func compareGreedy(t *testing.T, m *Model, r reference) {
	t.Helper()
	prompt, _ := r.ids("prompt")
	want, _ := r.ids("greedy")
	if prompt == nil {
		return
	}
	s, err := m.Model().NewSession(1)
	if err != nil {
		t.Fatal(err)
	}
	next := prompt
	for i, id := range want {
		logits, err := s.Step(next, len(next))
		if err != nil {
			t.Fatal(err)
		}
		best := int32(0)
		for j, x := range logits {
			if x > logits[best] {
				best = int32(j)
			}
		}
		if best != id {
			t.Errorf("greedy token %d is %d, want %d", i, best, id)
			return
		}
		next = []int32{best}
	}
}
