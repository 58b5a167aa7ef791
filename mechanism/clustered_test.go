package mechanism

import (
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// clusterSubjects are those that cluster queries.
func clusterSubjects() (list []subject) {
	for _, x := range []struct {
		top, clusters, bits, iterations, bias, scale string
	}{
		{"", "4", "9", "5", "true", "1/sqrt(D)"},
		{"", "70", "64", "2", "false", "2"},
		{"3", "4", "9", "5", "true", "1/sqrt(D)"},
		{"1", "3", "1", "1", "true", "0.5"},
		{"40", "40", "16", "3", "false", "1/sqrt(D)"},
	} {
		set := map[string]string{"clusters": x.clusters, "bits": x.bits, "iterations": x.iterations, "bias": x.bias, "scale": x.scale}
		name, label := "clustered", "clustered"
		if x.top != "" {
			name, label = "improved-clustered", "improved-clustered topk="+x.top
			set["topk"] = x.top
		}
		top, _ := strconv.Atoi(x.top)
		iterations, _ := strconv.Atoi(x.iterations)
		scale, _ := strconv.ParseFloat(x.scale, 64) // 0: of the width
		list = append(list, subject{
			label: label + " clusters=" + x.clusters + " bits=" + x.bits + " iterations=" + x.iterations, name: name,
			o: Options{Width: 3, Set: set}, average: true,
			whole: func(p numbers) oracle.HeadMatrix {
				return oracle.NewClustered(p["planes"], p["start"], iterations, top, scale)
			},
		})
	}
	return list
}

// What the clusters keep and work in is scratch, or Saved.
func TestClustersDoNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "clustered", map[string]string{"clusters": "5"})
	doNotAllocate(t, "improved-clustered", map[string]string{"clusters": "5", "topk": "7"})
}

// Planes of another width are refused, with both numbers.
func TestClusteredRefusesOtherWidths(t *testing.T) {
	m, err := New("clustered", Options{Width: 8})
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.NewHeads(1, 1, 3, 4)
	err = m.Forward(x, &attention.Call{Q: x, K: x, V: x}, nil)
	if want := "q: has width 4, planes of clustered are for 8"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

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
	want := both(t, exact, c, in(do))
	for name, set := range map[string]map[string]string{
		"clustered":          {"clusters": "12", "iterations": "1", "bits": "64"},
		"improved-clustered": {"clusters": "2", "topk": "4096"}, // more than there are keys
	} {
		m, err := New(name, Options{Width: 8, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		got := both(t, m, c, in(do))
		holdSoftmax(t, name, got, want, oc, do)
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
			start.Data[i] = float(i%4) / 4 // the second four begin where the first do
		}
		got := both(t, m, c, in(do))
		if first == nil {
			first = got
		} else if !sameHeads(got.o, first.o) || !sameHeads(got.g.DQ, first.g.DQ) || !sameHeads(got.g.DK, first.g.DK) {
			t.Error("clusters that are empty change bits")
		}
	}
}
