package demo

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
)

// longest is the most seconds that a call may be expected to take where time
// grows with the square of the tokens.
const longest = 1.5

// perPoint is the time to spend on each point.
const perPoint = 30 * time.Millisecond

// scaling holds the measurements at growing numbers of tokens.
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

// measureScaling times forward passes over up to most tokens and calls watch with the
// length of each point. do makes each call (bench.Measure).
func measureScaling(most int, do func(func() error) error, watch func(n int)) (*scaling, error) {
	fast, err := mechanism.New[float32](demoMechanism, demoOptions)
	if err != nil {
		return nil, err
	}
	shape := attention.Shape{B: 1, H: demoHeads, Hkv: demoHeads, D: demoWidth, Dv: demoWidth, Causal: true}
	state, err := fast.NewState(shape)
	if err != nil {
		return nil, err
	}
	s := &scaling{cache: 4 * demoHeads * 2 * demoWidth}
	seen := 0
	for _, n := range lengths(most) {
		watch(n)
		var cases []*bench.Case
		add := func(name string, o mechanism.Options, form attention.Form) error {
			shape := shape
			shape.N, shape.M, shape.Form = n, n, form
			c, err := bench.Attention{Mechanism: name, Options: o, Shape: shape}.Case()
			cases = append(cases, c)
			return err
		}
		square := func(x []float64) bool { // the next point is worth measuring
			i := len(x)
			return i == len(s.n) && (i == 0 || x[i-1]*math.Pow(float64(n)/s.n[i-1], 2) < longest)
		}
		err := add(demoMechanism, demoOptions, attention.Linear)
		measured := []*[]float64{&s.linear}
		if err == nil && square(s.softmax) {
			err = add("softmax", mechanism.Options{}, attention.Direct)
			measured = append(measured, &s.softmax)
		}
		if err == nil && square(s.direct) {
			err = add(demoMechanism, demoOptions, attention.Direct)
			measured = append(measured, &s.direct)
		}
		if err != nil {
			return nil, err
		}
		if err := bench.Measure(cases, perPoint, do, nil); err != nil {
			return nil, err
		}
		for i, c := range cases {
			*measured[i] = append(*measured[i], c.Ms/1e3)
		}
		s.n = append(s.n, float64(n))
		if err := absorb(state, n-seen); err != nil {
			return nil, err
		}
		seen = n
		s.state = append(s.state, state.Bytes())
	}
	return s, nil
}

// absorb lets a state take in n random tokens.
func absorb(state attention.State[float32], n int) error {
	const most = 1000
	c := demoCall(min(n, most))
	for ; n > 0; n -= most {
		l := min(n, most)
		if err := state.Absorb(&attention.Call[float32]{K: c.K.Tokens(0, l), V: c.V.Tokens(0, l)}); err != nil {
			return err
		}
	}
	return nil
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
	softmax, _ = bench.FindCrossover(s.n[:len(s.softmax)], s.softmax, s.linear[:len(s.softmax)])
	direct, _ = bench.FindCrossover(s.n[:len(s.direct)], s.direct, s.linear[:len(s.direct)])
	return softmax, direct
}

// figure is the same as a picture.
func (s *scaling) figure() *report.Figure {
	last := len(s.softmax) - 1
	f := &report.Figure{
		Title:  fmt.Sprintf("Causal attention, %d heads of width %d, forward", demoHeads, demoWidth),
		XLabel: "tokens", YLabel: "time of a call",
		XText: func(x float64) string { return display.FormatAmount(x, "") }, YText: display.FormatTick,
		Series: []report.Series{
			{Name: "fastmax, linear form", X: s.n, Y: s.linear},
			{Name: "softmax", X: s.n[:last+1], Y: s.softmax},
		},
	}
	if last+1 < len(s.n) {
		beyond := report.Series{Name: "softmax, extrapolated", Style: report.DashedLine}
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
		n := math.Pow(10, at)
		linear[x] = math.Log10(bench.Interpolate(s.n, s.linear, n))
		soft[x], beyond[x] = math.NaN(), math.NaN()
		if y := math.Log10(bench.Interpolate(s.n, all, n)); at <= end+1e-9 {
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
		return fmt.Sprintf("%7s", display.FormatSeconds(math.Pow(10, math.Round(y))))
	}
	fmt.Fprintln(w, asciigraph.PlotMany([][]float64{beyond, soft, linear},
		asciigraph.LowerBound(low), asciigraph.UpperBound(high), asciigraph.Height(2*int(high-low)),
		asciigraph.SeriesChars(asciigraph.CreateCharSet("·"), asciigraph.CreateCharSet("o"), asciigraph.DefaultCharSet),
		asciigraph.YAxisValueFormatter(label),
		asciigraph.XAxisRange(first, last), asciigraph.XAxisTickCount(int(math.Round(last-first))+1),
		asciigraph.XAxisValueFormatter(func(x float64) string { return display.FormatAmount(math.Pow(10, x), "") }),
		asciigraph.Caption("tokens    ── fastmax, linear form   oo softmax   ·· softmax, extrapolated"),
	))
}

// table writes the points as markdown.
func (s *scaling) table(w io.Writer) error {
	rows := [][]string{{"tokens", "fastmax, linear", "softmax", "state of fastmax", "cache of softmax"}}
	for i, n := range s.n {
		t, measured := s.softmaxAt(i)
		soft := display.FormatSeconds(t)
		if !measured {
			soft += " (extrapolated)"
		}
		rows = append(rows, []string{strconv.Itoa(int(n)), display.FormatSeconds(s.linear[i]), soft, display.FormatBytes(float64(s.state[i])), display.FormatBytes(s.cache * n)})
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
