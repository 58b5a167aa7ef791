//go:build float64

package mechanism

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// Why there is no causal form: clusters are made of all queries. The last query
// alone changes here, and outputs of others do.
func TestClustersUseLaterQueries(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 30, m: 30, d: 4, dv: 3}.call(111)
	for _, name := range []string{"clustered", "improved-clustered"} {
		m, err := New(name, Options{Width: 4, Set: map[string]string{"clusters": "3"}})
		if err != nil {
			t.Fatal(err)
		}
		c := callIn(oc)
		before := forward(t, m, c)
		for i := range c.Q.Head(0, 0).Row(29) {
			c.Q.Head(0, 0).Row(29)[i] *= -3
		}
		if after := forward(t, m, c); name == "clustered" && sameHeads(before.o.Tokens(0, 29), after.o.Tokens(0, 29)) {
			t.Errorf("%s: the last query changes no other", name)
		}
		c.Causal = true
		err = m.Forward(before.o, c, nil)
		if want := "causal: " + name + " has no causal form: a cluster is made of all its queries"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// With as many clusters as there are queries, all begun apart, or with all keys
// on top, there is nothing left to approximate.
func TestClustersOfOneAreSoftmax(t *testing.T) {
	oc, do := shape{b: 2, h: 2, hkv: 1, n: 12, m: 15, d: 8, dv: 3}.call(112)
	oc.KeyMask = make([]bool, 30)
	for j := range oc.KeyMask {
		oc.KeyMask[j] = j%4 != 1
	}
	exact, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := callIn(oc)
	want := both(t, exact, c, do)
	for name, set := range map[string]map[string]string{
		"clustered":          {"clusters": "12", "iterations": "1", "bits": "64"},
		"improved-clustered": {"clusters": "2", "topk": "4096"}, // more than there are keys
	} {
		m, err := New(name, Options{Width: 8, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		got := both(t, m, c, do)
		for _, x := range []struct {
			name      string
			got, want []float64
		}{{"o", got.o.Data, want.o.Data}, {"dq", got.g.DQ.Data, want.g.DQ.Data}, {"dk", got.g.DK.Data, want.g.DK.Data}, {"dv", got.g.DV.Data, want.g.DV.Data}} {
			if e := check.ErrorRatio(x.got, x.want, 1e-12); e > 1 {
				t.Errorf("%s: %s is not that of softmax, by %.3g", name, x.name, 1e-12*e)
			}
		}
	}
}

// Empty clusters change nothing. They occur if there are more clusters than queries, or if
// several clusters start from the same query.
func TestEmptyClustersChangeNothing(t *testing.T) {
	oc, do := shape{b: 1, h: 1, hkv: 1, n: 9, m: 9, d: 4, dv: 3}.call(113)
	c := callIn(oc)
	var first *results
	for _, clusters := range []string{"4", "8"} {
		m, err := New("improved-clustered", Options{Width: 4, Set: map[string]string{"clusters": clusters, "topk": "2", "bits": "8"}})
		if err != nil {
			t.Fatal(err)
		}
		start, err := m.Constants().Get("start")
		if err != nil {
			t.Fatal(err)
		}
		for i := range start.Data {
			start.Data[i] = float64(i%4) / 4 // the second four begin where the first do
		}
		got := both(t, m, c, do)
		if first == nil {
			first = got
		} else if !sameHeads(got.o, first.o) || !sameHeads(got.g.DQ, first.g.DQ) || !sameHeads(got.g.DK, first.g.DK) {
			t.Error("clusters that are empty change bits")
		}
	}
}
