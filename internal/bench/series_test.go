package bench

import (
	"math"
	"slices"
	"testing"
)

// curve is a series with those times; 0 is what was not measured.
func curve(name string, grows bool, d int, n, ms []float64) []*Case {
	var list []*Case
	for i, x := range n {
		c := &Case{AskedForm: "auto", Grows: grows, X: x, FLOPs: x * x}
		c.Line = Line{Mechanism: name, D: d, N: int(x), Ms: ms[i]}
		if ms[i] > 0 {
			c.Line.GFLOPS = c.FLOPs / (ms[i] * 1e6)
		}
		list = append(list, c)
	}
	return list
}

func TestGather(t *testing.T) {
	n := []float64{10, 20}
	a, b := curve("a", false, 8, n, []float64{1, 2}), curve("a", false, 9, n, []float64{1, 2})
	list := GroupSeries([]*Case{a[0], b[0], a[1], b[1]})
	if len(list) != 2 || !slices.Equal(list[0], a) || !slices.Equal(list[1], b) {
		t.Errorf("series %v", list)
	}
}

func TestCrossings(t *testing.T) {
	n := []float64{100, 1000, 10000}
	slow := curve("slow", false, 8, n, []float64{1, 100, 10000})
	for _, c := range []struct {
		name   string
		fast   []*Case
		found  int
		at     float64
		always bool
	}{
		{"in between", curve("fast", true, 8, n, []float64{2, 20, 200}), 1, 200, false},
		{"always", curve("fast", true, 8, n, []float64{0.5, 5, 50}), 1, 0, true},
		{"never", curve("fast", true, 8, n, []float64{2000, 2e4, 2e5}), 1, 0, false},
		{"at the first two only", curve("fast", true, 8, n, []float64{2, 20, 0}), 1, 200, false},
		{"at one only", curve("fast", true, 8, n, []float64{2, 0, 0}), 0, 0, false},
		{"another width", curve("fast", true, 9, n, []float64{2, 20, 200}), 0, 0, false},
		{"both look at pairs", curve("fast", false, 8, n, []float64{2, 20, 200}), 0, 0, false},
	} {
		got := FindCrossings(GroupSeries(append(slices.Clone(slow), c.fast...)))
		if len(got) != c.found {
			t.Errorf("%s: %d crossings", c.name, len(got))
			continue
		}
		if c.found == 1 && (math.Abs(got[0].Length-c.at) > 1e-9*c.at || got[0].LinearIsFaster != c.always) {
			t.Errorf("%s: %+v", c.name, got[0])
		}
	}
}

func TestAutoStandsForItsForms(t *testing.T) {
	n := []float64{100, 1000}
	of := func(form string, grows bool, mechanism string) []*Case {
		list := curve(mechanism, grows, 8, n, []float64{1, 100})
		if grows {
			list = curve(mechanism, grows, 8, n, []float64{5, 50})
		}
		for _, c := range list {
			c.AskedForm = form
		}
		return list
	}
	var all []*Case
	for _, c := range [][]*Case{
		of("auto", true, "a"), of("direct", false, "a"), of("linear", true, "a"), of("auto", false, "b"), of("direct", false, "b"), of("auto", false, "c"),
	} {
		all = append(all, c...)
	}
	var said []string
	for _, x := range FindCrossings(GroupSeries(all)) {
		said = append(said, x.Linear.Method()+" "+x.Pairs.Method())
		if math.Abs(x.Seconds-Interpolate(n, []float64{5e-3, 50e-3}, x.Length)) > 1e-12 {
			t.Errorf("%s cross at %g s", x.Linear.Method(), x.Seconds)
		}
	}
	want := []string{"a auto b direct", "a auto c auto", "a linear a direct", "a linear b direct", "a linear c auto"}
	if !slices.Equal(said, want) {
		t.Errorf("crossings %q, want %q", said, want)
	}
}

func TestSettings(t *testing.T) {
	c := &Case{AskedForm: "auto", Line: Line{Mechanism: "m", Order: 3, D: 8, Dv: 4, Heads: 2, Threads: 2, Direction: backward}}
	if got, want := (Series{c}).Name(), "m 3 auto, D 8, Dv 4, 2 heads, 2 threads, backward"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

func TestBeyondKeepsTheSpeed(t *testing.T) {
	s := Series(curve("a", false, 8, []float64{10, 20, 40}, []float64{1, 4, 0}))
	x, y := s.ExtrapolatedPoints()
	if !slices.Equal(x, []float64{40}) || len(y) != 1 || math.Abs(y[0]-16e-3) > 1e-12 {
		t.Errorf("beyond: %v, %v", x, y)
	}
	if x, _ := Series(curve("a", false, 8, []float64{10}, []float64{0})).ExtrapolatedPoints(); x != nil {
		t.Errorf("beyond nothing: %v", x)
	}
}
