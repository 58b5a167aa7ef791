//go:build !float64

package mechanism

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Samples that are written are used, and calls that they do not suffice for are
// refused.
func TestInformerSamplesAreInjected(t *testing.T) {
	o := Options{Length: 20, Set: map[string]string{"factor": "1", "sample": "stored"}}
	stored, err := New("informer", o)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := New("informer", Options{Set: map[string]string{"factor": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 20, m: 20, d: 4, dv: 3}.call(98)
	c := callIn(oc)
	want := forward(t, drawn, c)
	if !same(forward(t, stored, c).o.Data, want.o.Data) {
		t.Error("samples that are stored are not those that are drawn")
	}
	sample, err := stored.Constants().Get("sample")
	if err != nil {
		t.Fatal(err)
	}
	clear(sample.Data) // the first key alone: all measures are 0, the first queries are chosen
	o2 := forward(t, stored, c).o
	mean := o2.Head(0, 0).Row(19)
	for i := range 20 {
		if averaged := same(o2.Head(0, 0).Row(i), mean); averaged != (i >= 3) {
			t.Errorf("query %d is averaged: %t", i, averaged)
		}
	}
	long := &attention.Call{Q: tensor.NewHeads(1, 1, 3, 4), K: tensor.NewHeads(1, 1, 21, 4), V: tensor.NewHeads(1, 1, 21, 3)}
	err = stored.Forward(tensor.NewHeads(1, 1, 3, 3), long, nil)
	if want := "k: a sequence has 21 tokens, which need 4 samples of each query, informer has 3"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, x := range []float32{-0.5, 1.5, float32(math.NaN())} {
		sample.Data[7] = x
		err = stored.Forward(o2, c, nil)
		if want := fmt.Sprintf("sample: sample 1 of token 2 is %v, needs to be between 0 and 1", x); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := New("informer", Options{Set: map[string]string{"sample": "stored"}}); err == nil {
		t.Error("samples of an unknown number of tokens are not refused")
	}
}
