//go:build float64

package model

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Rows between layers are the rows that the head reads in the end, and are as many.
func TestVisitLayersSeesEveryLayer(t *testing.T) {
	for _, name := range []string{"bert", "modernbert", "phi", "bart", "vit", "decoder softmax"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, true)
		var places [2][]int
		var last []float64
		err := m.VisitLayers(t.Context(), b, func(source bool, layer int, rows tensor.Mat) error {
			if source {
				places[1] = append(places[1], layer)
			} else {
				places[0], last = append(places[0], layer), slices.Clone(rows.Data)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		y, err := m.Outputs(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(last, y.Data) {
			t.Errorf("%s: the last rows are not the outputs", name)
		}
		for i, layers := range []int{c.Layers, c.sourceLayers()} {
			for j, place := range places[i] {
				if place != j || len(places[i]) != layers+2 {
					t.Errorf("%s: places are %v, there are %d layers", name, places[i], layers)
				}
			}
		}
	}
}

func TestVisitLogitsAreLogits(t *testing.T) {
	for _, name := range []string{"bert", "modernbert mean", "phi", "bart", "vit"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, true)
		want := logits(t, m, b)
		got, last := make([]float64, len(want)), 0
		err := m.VisitLogits(t.Context(), b, got, func(_ bool, layer int, _ tensor.Mat) error {
			last = layer
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || last != c.Layers+1 {
			t.Errorf("%s: logits differ, or the last place is %d and not %d", name, last, c.Layers+1)
		}
		if err := m.VisitLogits(t.Context(), b, got[1:], nil); err == nil {
			t.Errorf("%s: a short destination is accepted", name)
		}
	}
}

// The gradient from logits is the gradient of their weighted sum.
func TestGradientsFromLogits(t *testing.T) {
	for _, name := range []string{"bert", "bert classifier", "modernbert mean", "gemma", "bart", "vit"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, true)
		dlogits := make([]float64, c.Rows(b.B, b.N)*c.outputSize())
		for i := range dlogits {
			dlogits[i] = rng.New(7).Normal(uint64(i))
		}
		if err := m.BackwardLogits(dlogits, 1); err == nil {
			t.Errorf("%s: BackwardLogits is accepted without Outputs", name)
		}
		if _, err := m.Outputs(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := m.BackwardLogits(dlogits, 1); err != nil {
			t.Fatal(err)
		}
		for i, p := range m.Params().All() {
			start, direction := slices.Clone(p.Data), make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(8).Fold(uint64(i)).Normal(uint64(j)) / float64(len(direction))
			}
			at := func(x float64) float64 {
				for j, d := range direction {
					p.Data[j] = start[j] + x*d
				}
				return dot(logits(t, m, b), dlogits)
			}
			const h = 1e-3
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			copy(p.Data, start)
			if got := dot(p.Grad, direction); !(math.Abs(got-want) <= 1e-6*(1+math.Abs(want))) {
				t.Errorf("%s %s: slope is %v, want %v", name, p.Name, got, want)
			}
		}
	}
}

// A mask of keys at the end is the same as lengths; masked positions change nothing.
func TestKeyMaskIsNotSeen(t *testing.T) {
	for _, name := range []string{"bert", "bert classifier", "modernbert", "modernbert mean", "mpnet", "vit", "mistral", "llama"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 3, 6, true)
		masked := *b
		masked.Lens = nil
		for i := range b.B {
			for j := range b.N {
				masked.KeyMask = append(masked.KeyMask, int64(j) < b.Lens[i])
			}
		}
		if got, want := loss(t, m, &masked), loss(t, m, b); !(math.Abs(got-want) <= 1e-13*want) {
			t.Errorf("%s: loss is %v with a mask, %v with lengths", name, got, want)
		}
		masked.KeyMask[b.N+1] = false // in the middle of row 1
		againstSlopes(t, m, &masked)
		want := loss(t, m, &masked)
		if c.Inputs > 0 {
			masked.Values = slices.Clone(b.Values)
			masked.Values[(b.N+1)*c.Inputs]++
		} else {
			masked.Tokens = slices.Clone(b.Tokens)
			masked.Tokens[b.N+1] = (b.Tokens[b.N+1] + 1) % int32(c.Vocab)
		}
		if got := loss(t, m, &masked); got != want {
			t.Errorf("%s: a masked token changes the loss from %v to %v", name, want, got)
		}
	}
}

// Positions in order are the default, and others choose rows of the table.
func TestPositionsChooseRows(t *testing.T) {
	c := cases()["roberta"]
	m, b := made(t, c), batch(c, 1, 2, 5, false)
	want := loss(t, m, b)
	b.Positions = []int32{2, 3, 4, 5, 6, 2, 3, 4, 5, 6}
	if got := loss(t, m, b); got != want {
		t.Errorf("loss is %v, want %v", got, want)
	}
	b.Positions = []int32{9, 1, 1, 0, 3, 7, 7, 2, 4, 5}
	if got := loss(t, m, b); got == want {
		t.Error("positions change nothing")
	}
	againstSlopes(t, m, b)
	b.Positions[3] = 10
	if _, err := m.Forward(t.Context(), b); err == nil || err.Error() != "positions: row 0, position 3 is 10, the learned table has 10" {
		t.Errorf("error is %v", err)
	}
	b = batch(c, 1, 1, 9, false)
	if _, err := m.Forward(t.Context(), b); err == nil || err.Error() != "positions: 9 are needed, the learned table has 8" {
		t.Errorf("error is %v", err)
	}
}
