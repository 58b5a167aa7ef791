package reproduce

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/papercost"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var taylorShiftCrossover = Row{
	Name:   "taylorshift-crossover",
	Doc:    "lengths from which the efficient form is faster (N0) and smaller (N1), predicted and measured",
	Source: "Nauen et al. 2024, TaylorShift, arXiv 2403.02920, section 4 and section 5.1",
	Claim:  "N0 = 273, 1057, 4161 and N1 = 159, 574, 2174 at d = 16, 32, 64; measured N0 is about 18d more, N1 within 0.6 %",
	pieces: crossoverPieces, outcome: crossoverOutcome,
}

// crossoverWidths are the d of the page's table that a CPU passes in minutes.
var crossoverWidths = []int{16, 32, 64}

type crossoverConfig struct {
	D       int           `json:"d"`
	Lengths []int         `json:"lengths"`
	Each    time.Duration `json:"each"`
}

// packedN0 is the length at which both forms count the same useful operations,
// with F packed features where the paper has d² + d + 1: F(d+1)/d.
func packedN0(d int) float64 {
	return float64(binomial(d+2, 2)*(d+1)) / float64(d)
}

func crossoverConfigs(o *Options) (list []crossoverConfig) {
	for _, d := range crossoverWidths {
		c := crossoverConfig{D: d, Each: pick(o.Budget, 300*time.Millisecond, 3*time.Second, 20*time.Second)}
		// The middle is the prediction itself, where shares are measured.
		for e := -4; e <= 4; e++ {
			c.Lengths = append(c.Lengths, int(math.Round(packedN0(d)*math.Pow(2, float64(e)/4))))
		}
		list = append(list, c)
	}
	return list
}

// buffers is where the efficient form begins to hold fewer numbers than the
// direct one, both with every intermediate result written down.
type buffers struct {
	N1         int     `json:"n1"`
	Difference float64 `json:"difference"` // largest, of the outputs of both at N1 from the mechanism's
}

func crossoverPieces(o *Options) (list []Piece, err error) {
	for _, c := range crossoverConfigs(o) {
		list = append(list, Piece{
			Name: fmt.Sprintf("time-d%d", c.D), Config: c, Time: raceTime(2*len(c.Lengths), c.Each),
			run: func(w *Work) (any, error) { return c.run(w) },
		})
	}
	for _, d := range crossoverWidths {
		x := float64(d)
		list = append(list, Piece{
			Name: fmt.Sprintf("entries-d%d", d), Config: map[string]int{"d": d},
			FLOPs: plainLoopCost * 7 * papercost.TaylorShiftCost(int(x*x/2), d).OpsEfficient.Total(), // of the lengths that are tried
			run:   func(w *Work) (any, error) { return countBuffers(w, d) },
		})
	}
	return list, nil
}

func (c *crossoverConfig) run(w *Work) ([]timing, error) {
	var list []timed
	for _, form := range []attention.Form{attention.Direct, attention.Linear} {
		for _, n := range c.Lengths {
			a := bench.Attention{Mechanism: "taylorshift", Shape: attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: c.D, Dv: c.D, Form: form}}
			bc, err := a.Case()
			if err != nil {
				return nil, err
			}
			list = append(list, timed{form.String(), n, bc})
		}
	}
	return w.race(list, c.Each, time.Minute)
}

// countBuffers finds N1 by running both materialised forms.
func countBuffers(w *Work, d int) (b buffers, err error) {
	run := func(n int) (direct, efficient int) {
		x := tokensOf(n, d)
		var a, e ledger
		out := make([]float32, n*d)
		directTaylorShift(out, x[0], x[1], x[2], n, d, &a)
		efficientTaylorShift(out, x[0], x[1], x[2], n, d, &e)
		return a.peak, e.peak
	}
	b.N1 = 1 + sort.Search(d*d+8*d, func(n int) bool {
		if w.Ctx.Err() != nil {
			return true
		}
		direct, efficient := run(n + 1)
		return efficient < direct
	})
	if err := w.Ctx.Err(); err != nil {
		return b, err
	}
	x := tokensOf(b.N1, d)
	var l ledger
	both := [2][]float32{make([]float32, b.N1*d), make([]float32, b.N1*d)}
	directTaylorShift(both[0], x[0], x[1], x[2], b.N1, d, &l)
	efficientTaylorShift(both[1], x[0], x[1], x[2], b.N1, d, &l)
	m, err := mechanism.New("taylorshift", mechanism.Options{Heads: 1})
	if err != nil {
		return b, err
	}
	call := new(attention.Call)
	head := func(x []float32) tensor.Heads { return tensor.HeadsOf(x, 1, 1, b.N1, d) }
	call.Q, call.K, call.V = head(x[0]), head(x[1]), head(x[2])
	out := head(make([]float32, b.N1*d))
	if err := m.Forward(out, call, nil); err != nil {
		return b, err
	}
	for i, y := range out.Data {
		for _, form := range both {
			b.Difference = max(b.Difference, math.Abs(float64(form[i]-y)))
		}
	}
	return b, nil
}

// tokensOf returns queries and keys of length 1 and values of N(0,1) numbers,
// each [n,d].
func tokensOf(n, d int) (x [3][]float32) {
	for i := range x {
		key := rng.New(1).Fold(uint64(i))
		x[i] = make([]float32, n*d)
		for j := range x[i] {
			x[i][j] = float32(key.Normal(uint64(j)))
		}
	}
	unit(x[0], d)
	unit(x[1], d)
	return x
}

func crossoverOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	times := report.Table{
		Title: "N0: the linear form is faster from here",
		Head:  []string{"d", "published N0", "published measured, N0 + 18d", "packed count F(d+1)/d", "share of peak, direct / linear", "predicted here", "measured here", "predicted / measured"},
		Note: "Predicted: the packed count times the ratio of the shares of the peak that both forms reach there, direct over linear: two timings, extrapolated. " +
			"Measured: where the curves of time cross. One head, one thread's unit, all keys, forward.",
	}
	f := report.Figure{Title: "TaylorShift: time over tokens, one head", XLabel: "tokens N", YLabel: "milliseconds"}
	least, most := math.Inf(1), 0.0 // of measured over published N0
	for _, c := range crossoverConfigs(o) {
		list, found, err := get[[]timing](r, fmt.Sprintf("time-d%d", c.D))
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		const direct, linear = "direct", "linear"
		for _, form := range []string{direct, linear} {
			n, s := curve(list, form)
			for i := range s {
				s[i] *= 1e3
			}
			f.Series = append(f.Series, report.Series{Name: fmt.Sprintf("%s, d %d", form, c.D), X: n, Y: s, Colour: fmt.Sprint(c.D), Mark: form})
		}
		middle := c.Lengths[len(c.Lengths)/2]
		a, _ := findTiming(list, direct, middle)
		b, _ := findTiming(list, linear, middle)
		predicted := packedN0(c.D) * a.Share / b.Share
		paper := papercost.TaylorShiftCost(1, c.D)
		cells := []string{fmt.Sprint(c.D), fmt.Sprintf("%.0f", math.Ceil(paper.N0)), fmt.Sprintf("%.0f", paper.N0Measured), fmt.Sprintf("%.0f", packedN0(c.D)),
			fmt.Sprintf("%s / %s", percent(a.Share), percent(b.Share)), fmt.Sprintf("%.0f", predicted)}
		if n, crossed := crossing(list, direct, linear); crossed {
			cells = append(cells, fmt.Sprintf("%.0f", n), digits(predicted/n))
			least, most = min(least, n/paper.N0), max(most, n/paper.N0)
			x, s := curve(list, linear)
			f.Series = append(f.Series, report.Series{X: []float64{n}, Y: []float64{1e3 * bench.Interpolate(x, s, n)}, Style: report.Rings})
		} else {
			cells = append(cells, none, none)
		}
		addRow(&times, cells...)
	}
	out.Tables = append(out.Tables, times)
	if len(f.Series) > 0 {
		out.Figures = append(out.Figures, Drawing{"time", f})
	}
	if most > 0 {
		out.find("N0 is measured at %s to %s times the published formula: packed features have half the operations.", digits(least), digits(most))
	}

	entries := report.Table{
		Title: "N1: the efficient form holds fewer numbers from here",
		Head:  []string{"d", "published N1", "measured on materialised forms", "measured / published", "largest difference of outputs"},
		Note:  "Both forms with every intermediate result written down, and their buffers counted while they run. Outputs against the mechanism's at N1, in float32. Farfield's own forms write down neither N×N nor N×d².",
	}
	worst, any := 0.0, false
	for _, d := range crossoverWidths {
		b, found, err := get[buffers](r, fmt.Sprintf("entries-d%d", d))
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		paper := papercost.TaylorShiftCost(1, d).N1
		addRow(&entries, fmt.Sprint(d), fmt.Sprintf("%.0f", math.Ceil(paper)), fmt.Sprint(b.N1), fmt.Sprintf("%.3f", float64(b.N1)/paper), digits(b.Difference))
		worst, any = max(worst, math.Abs(float64(b.N1)/paper-1)), true
	}
	out.Tables = append(out.Tables, entries)
	if any {
		out.find("N1 counted from the buffers of running programs is within %s of the published formula.", percent(worst))
	}
	return out, nil
}
