package mechanism

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Samples that are stored belong to tokens of one sequence, and suffice for keys that need
// no more of them.
func TestInformerSamplesServeEachSequence(t *testing.T) {
	stored, err := New("informer", Options{Length: 25, Set: map[string]string{"factor": "1", "sample": "stored"}})
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := New("informer", Options{Set: map[string]string{"factor": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 40, m: 80, d: 4, dv: 3}.call(99)
	c := callIn(oc)
	c.CuQ, c.CuK = []int64{0, 25, 40}, []int64{0, 50, 80}
	if !same(forward(t, stored, c).o.Data, forward(t, drawn, c).o.Data) {
		t.Error("packed sequences have other samples")
	}
	c.CuQ = []int64{0, 26, 40}
	err = stored.Forward(output(c), c, nil)
	if want := "q: a sequence has 26 tokens, informer has samples for 25"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Why there is no causal form: which queries are computed depends on queries after
// them. Here the last query alone changes, which no softmax of another query
// sees, and others change between a softmax and a mean.
func TestInformerChoosesByLaterQueries(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: 4, dv: 3}.call(97)
	m, err := New("informer", Options{Set: map[string]string{"factor": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	c := callIn(oc)
	for i := range c.Q.Head(0, 0).Row(39) {
		c.Q.Head(0, 0).Row(39)[i] = 0 // its measure is 0
	}
	before := forward(t, m, c)
	for i := range c.Q.Head(0, 0).Row(39) {
		c.Q.Head(0, 0).Row(39)[i] = 100 // it is chosen, and another is not
	}
	after := forward(t, m, c)
	changed := 0
	for i := range 39 {
		if !same(before.o.Head(0, 0).Row(i), after.o.Head(0, 0).Row(i)) {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("the last query changed the outputs of %d others, want 1", changed)
	}
	c.Causal = true
	err = m.Forward(before.o, c, nil)
	if want := "causal: informer has no causal form: which queries are computed depends on all of them"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

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
	for _, x := range []float{-0.5, 1.5, float(math.NaN())} {
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
