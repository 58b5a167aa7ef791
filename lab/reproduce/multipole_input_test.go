package reproduce

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// With tol 0 calls and steps have no error beside softmax, and both have a time.
func TestInputHeadsAreMeasured(t *testing.T) {
	const n, d = 700, 16
	key := rng.New(1)
	rows := func(stream uint64) tensor.Heads {
		x := tensor.NewHeads(1, 2, n, d/2)
		for i := range x.Data {
			x.Data[i] = float32(key.Fold(stream).Normal(uint64(i)))
		}
		return side(x, 0, d)
	}
	softmax, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	of, err := mechanism.New("multipole", mechanism.Options{Set: map[string]string{"centres": "input", "tol": "0"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, steps := range []int{0, 5} {
		c := &inputConfig{Tokens: n, Width: d, Causal: true, Steps: steps, Turns: 1, Tol: "0"}
		call := &attention.Call{Q: rows(1), K: rows(2), V: rows(3), Causal: true}
		var r inputHead
		measure := r.measureCalls
		if steps > 0 {
			measure = r.measureSteps
		}
		if err := measure(c, softmax, of, call); err != nil {
			t.Fatal(err)
		}
		if r.Error > 1e-5 || r.Row > 1e-5 || r.Softmax < 0 || r.Seconds < 0 || steps == 0 && r.Exact < 0.9 {
			t.Errorf("%s: %+v", c.name(), r)
		}
	}
}
