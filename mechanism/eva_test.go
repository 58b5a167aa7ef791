package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// Means of chunks are of tokens that exist. With keys that are all the same, and
// queries too, so are the means, whichever tokens are masked: the authors'
// program counts zeros for these (form=code).
func TestEvaMeansLeaveMaskedTokensOut(t *testing.T) {
	for form, want := range map[string]bool{"paper": true, "code": false} {
		m, err := New[float64]("eva", Options{Width: 4, Set: map[string]string{"window": "2", "landmarks": "3", "form": form}})
		if err != nil {
			t.Fatal(err)
		}
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 3}.call(102)
		for i := range oc.Q.Data {
			oc.Q.Data[i], oc.K.Data[i] = oc.Q.Data[i%4], oc.K.Data[i%4]
		}
		for i := range oc.V.Data { // of the chunk that is masked in part
			if i >= 4*3 {
				oc.V.Data[i] = 0
			} else {
				oc.V.Data[i] = 1
			}
		}
		// All keys and all means are equal, so a query far from the first chunk gives
		// a third of what its summary does to each chunk, beside its window's.
		weight := func(mask []bool) float64 {
			oc.KeyMask = mask
			return forward(t, m, callIn[float64](oc)).o.At(0, 0).Row(11)[0]
		}
		all := weight(nil)
		masked := weight([]bool{true, false, false, true, true, true, true, true, true, true, true, true})
		if same := masked-all < 1e-12 && all-masked < 1e-12; same != want {
			t.Errorf("form=%s: the first chunk weighs %v, with masked tokens %v", form, all, masked)
		}
	}
}

// Noise that is written is added to the means: it changes what chunks are made of,
// and zeros do not.
func TestEvaNoiseIsInjected(t *testing.T) {
	o := Options{Width: 4, Set: map[string]string{"window": "2", "landmarks": "3"}}
	without, err := New[float64]("eva", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Set["noise"] = "normal"
	with, err := New[float64]("eva", o)
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 12, m: 12, d: 4, dv: 3}.call(103)
	c := callIn[float64](oc)
	want := forward(t, without, c)
	if same(forward(t, with, c).o.Data, want.o.Data) {
		t.Error("noise changes nothing")
	}
	clear(with.Constants().All()[0].Data)
	if !same(forward(t, with, c).o.Data, want.o.Data) {
		t.Error("noise of zeros changes something")
	}
	c.Causal = true
	err = with.Forward(tensor.NewHeads[float64](1, 2, 12, 3), c, nil)
	if want := "causal: eva has no causal form: every query sees the summaries of all chunks, later ones too; the authors' causal variant is not built here"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
