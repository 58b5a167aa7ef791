//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// With a window of all tokens, or a block, it is softmax.
func TestScatterbrainOfAllIsSoftmax(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 150, m: 150, d: 4, dv: 3, causal: true}.call(132)
	exact, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []map[string]string{{"window": "400"}, {"support": "lsh", "cluster": "150"}} {
		c := callIn(oc)
		c.Causal = set["window"] != ""
		m, err := New("scatterbrain", Options{Width: 4, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		got, want := both(t, m, c, do), both(t, exact, c, do)
		for _, x := range []struct{ got, want []float64 }{{got.o.Data, want.o.Data}, {got.g.DQ.Data, want.g.DQ.Data}, {got.g.DK.Data, want.g.DK.Data}, {got.g.DV.Data, want.g.DV.Data}} {
			if e := check.ErrorRatio(x.got, x.want, 1e-12); e > 1 {
				t.Errorf("%v is not softmax, by %.3g", set, 1e-12*e)
			}
		}
	}
}

// Blocks of sorted tokens have no causal form, which is said.
func TestScatterbrainRefusesCallsThatDoNotFit(t *testing.T) {
	m, err := New("scatterbrain", Options{Width: 4, Set: map[string]string{"support": "lsh"}})
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.NewHeads(1, 1, 3, 4)
	err = m.Forward(x, &attention.Call{Q: x, K: x, V: x, Causal: true}, nil)
	if want := "causal: scatterbrain has no causal form: sorting puts tokens into blocks by later ones, too"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	y := tensor.NewHeads(1, 1, 3, 5)
	err = m.Forward(y, &attention.Call{Q: y, K: y, V: y}, nil)
	if want := "q: has width 5, rows of the projection have 4"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
