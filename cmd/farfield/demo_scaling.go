package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/guptarohit/asciigraph"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/report"
	"github.com/farfield-ml/farfield/tensor"
)

// longest is the most seconds that a measured point may be expected to take
// where time grows with the square of the tokens.
const longest = 2.0

// scaling is what was measured at growing numbers of tokens.
type scaling struct {
	n       []float64
	linear  []float64 // seconds of Fastmax in the linear form
	softmax []float64 // seconds of softmax, as far as it was measured
	direct  []float64 // seconds of Fastmax in the direct form, likewise
	state   []int64   // bytes of the state that has absorbed them
	cache   float64   // bytes that softmax has to keep of each token
}

// lengths are 100, 200, 500, 1000 and so on up to most.
func lengths(most int) []int {
	var list []int
	for p := 100; ; p *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*p > most {
				return list
			}
			list = append(list, m*p)
		}
	}
}

// measureScaling times forward passes over up to most tokens; each point is
// told to watch.
func measureScaling(most int, watch func(n int)) (*scaling, error) {
	fast, err := mechanism.New[float32](demoMechanism, demoOptions)
	if err != nil {
		return nil, err
	}
	soft, err := mechanism.New[float32]("softmax", mechanism.Options{})
	if err != nil {
		return nil, err
	}
	s := &scaling{cache: 4 * demoHeads * 2 * demoWidth}
	whole := demoCall(most)
	buffer := tensor.NewHeads[float32](1, demoHeads, most, demoWidth)
	keep := attention.Saved[float32]{Den: make([]float32, demoHeads*most)}
	for _, n := range lengths(most) {
		watch(n)
		c := *whole
		c.Q, c.K, c.V = c.Q.Tokens(0, n), c.K.Tokens(0, n), c.V.Tokens(0, n)
		out := buffer.Tokens(0, n)
		var failed error
		call := func(m attention.Mechanism[float32], form attention.Form) func() {
			c := c
			c.Form = form
			return func() {
				if err := m.Forward(out, &c, &keep); err != nil {
					failed = err
				}
			}
		}
		calls := []func(){call(fast, attention.Linear)}
		square := func(x []float64) bool { // the next point is worth measuring
			i := len(x)
			return i == len(s.n) && (i == 0 || x[i-1]*math.Pow(float64(n)/s.n[i-1], 2) < longest)
		}
		measured := []*[]float64{&s.linear}
		if square(s.softmax) {
			calls = append(calls, call(soft, attention.Direct))
			measured = append(measured, &s.softmax)
		}
		if square(s.direct) {
			calls = append(calls, call(fast, attention.Direct))
			measured = append(measured, &s.direct)
		}
		rounds := max(3, min(21, 20000/n)|1)
		if n > 20000 && len(calls) > 1 { // seconds each
			rounds = 1
		}
		calls[0]() // so that scratch memory is there
		for i, t := range bench.Medians(rounds, calls...) {
			*measured[i] = append(*measured[i], t)
		}
		s.n = append(s.n, float64(n))
		state, err := fast.NewState(c.Shape())
		if err != nil {
			return nil, err
		}
		if err := state.Absorb(&attention.Call[float32]{K: c.K, V: c.V}); err != nil {
			return nil, err
		}
		s.state = append(s.state, state.Bytes())
		if failed != nil {
			return nil, failed
		}
	}
	return s, nil
}

// softmaxAt is the time of softmax at point i, and whether it was measured;
// beyond that it grows with the square.
func (s *scaling) softmaxAt(i int) (seconds float64, measured bool) {
	last := len(s.softmax) - 1
	if i <= last {
		return s.softmax[i], true
	}
	return s.softmax[last] * math.Pow(s.n[i]/s.n[last], 2), false
}

// crossovers are the lengths from which on the linear form is the fastest,
// against softmax and against its own direct form; 0 where none was met.
func (s *scaling) crossovers() (softmax, direct float64) {
	softmax, _ = bench.Crossover(s.n[:len(s.softmax)], s.softmax, s.linear[:len(s.softmax)])
	direct, _ = bench.Crossover(s.n[:len(s.direct)], s.direct, s.linear[:len(s.direct)])
	return softmax, direct
}

// figure is the same as a picture.
func (s *scaling) figure() *report.Figure {
	last := len(s.softmax) - 1
	f := &report.Figure{
		Title:  fmt.Sprintf("Causal attention, %d heads of width %d, forward", demoHeads, demoWidth),
		XLabel: "tokens", YLabel: "seconds",
		Series: []report.Series{
			{Name: "fastmax, linear form", X: s.n, Y: s.linear},
			{Name: "softmax", X: s.n[:last+1], Y: s.softmax},
		},
	}
	if last+1 < len(s.n) {
		beyond := report.Series{Name: "softmax, extrapolated", Dashed: true}
		for i := last; i < len(s.n); i++ {
			t, _ := s.softmaxAt(i)
			beyond.X, beyond.Y = append(beyond.X, s.n[i]), append(beyond.Y, t)
		}
		f.Series = append(f.Series, beyond)
	}
	return f
}

// plot draws the same in a terminal, two rows for every power of ten.
func (s *scaling) plot(w io.Writer) {
	const width = 64
	all := make([]float64, len(s.n))
	for i := range all {
		all[i], _ = s.softmaxAt(i)
	}
	first, last := math.Log10(s.n[0]), math.Log10(s.n[len(s.n)-1])
	end := math.Log10(s.n[len(s.softmax)-1])
	linear, soft, beyond := make([]float64, width), make([]float64, width), make([]float64, width)
	for x := range width {
		at := first + (last-first)*float64(x)/(width-1)
		linear[x] = interpolate(s.n, s.linear, at)
		soft[x], beyond[x] = math.NaN(), math.NaN()
		if y := interpolate(s.n, all, at); at <= end+1e-9 {
			soft[x] = y
		} else {
			beyond[x] = y
		}
	}
	low := math.Floor(math.Log10(min(slices.Min(all), slices.Min(s.linear))))
	high := math.Ceil(math.Log10(max(slices.Max(all), slices.Max(s.linear))))
	label := func(y float64) string {
		if math.Abs(y-math.Round(y)) > 0.1 {
			return fmt.Sprintf("%7s", "")
		}
		return fmt.Sprintf("%7s", secondsText(math.Pow(10, math.Round(y))))
	}
	fmt.Fprintln(w, asciigraph.PlotMany([][]float64{beyond, soft, linear},
		asciigraph.LowerBound(low), asciigraph.UpperBound(high), asciigraph.Height(2*int(high-low)),
		asciigraph.SeriesChars(asciigraph.CreateCharSet("·"), asciigraph.CreateCharSet("o"), asciigraph.DefaultCharSet),
		asciigraph.YAxisValueFormatter(label),
		asciigraph.XAxisRange(first, last), asciigraph.XAxisTickCount(int(math.Round(last-first))+1),
		asciigraph.XAxisValueFormatter(func(x float64) string { return amountText(math.Pow(10, x), "") }),
		asciigraph.Caption("tokens    ── fastmax, linear form   oo softmax   ·· softmax, extrapolated"),
	))
}

// interpolate returns the decimal logarithm of y at x = 10^at, straight between
// the points on logarithmic axes.
func interpolate(x, y []float64, at float64) float64 {
	i := 1
	for i < len(x)-1 && math.Log10(x[i]) < at {
		i++
	}
	x0, x1 := math.Log10(x[i-1]), math.Log10(x[i])
	y0, y1 := math.Log10(y[i-1]), math.Log10(y[i])
	return y0 + (y1-y0)*(at-x0)/(x1-x0)
}

// table writes the points as markdown.
func (s *scaling) table(w io.Writer) error {
	rows := [][]string{{"tokens", "fastmax, linear", "softmax", "state of fastmax", "cache of softmax"}}
	for i, n := range s.n {
		t, measured := s.softmaxAt(i)
		soft := secondsText(t)
		if !measured {
			soft += " (extrapolated)"
		}
		rows = append(rows, []string{strconv.Itoa(int(n)), secondsText(s.linear[i]), soft, bytesText(float64(s.state[i])), bytesText(s.cache * n)})
	}
	var b strings.Builder
	for i, r := range rows {
		b.WriteString("| " + strings.Join(r, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(r)) + "|\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
