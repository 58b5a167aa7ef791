package reproduce

import (
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/report"
)

var linearFig1 = Row{
	Name:   "linear-fig1",
	Doc:    "time and memory of forward and backward over N: softmax, LSH, linear, fastmax",
	Source: "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, figure 1",
	Claim:  "time and memory of linear and LSH attention grow linearly with N, with softmax quadratically: on 11 GB softmax ends at N = 4096, LSH at 16384",
	pieces: linearFig1Pieces, outcome: linearFig1Outcome,
}

// linearFig1Curves lists the figure's curves, lsh-X with X rounds of hashing, and fastmax.
var linearFig1Curves = []method{
	softmax, linear, lsh(1), lsh(4), lsh(8), fastmax1, fastmax2,
}

// lsh is LSH attention as in the authors' program, where a key that several
// rounds find counts as often.
func lsh(rounds int) method {
	return method{Label: fmt.Sprintf("lsh-%d", rounds), Name: "reformer", Set: map[string]string{"rounds": fmt.Sprint(rounds), "repeats": "counted"}}
}

// linearFig1Race is what is timed in turns: all curves at one length.
type linearFig1Race struct {
	Methods []method      `json:"methods"`
	N       int           `json:"n"`
	Heads   int           `json:"heads"`
	D       int           `json:"d"`
	Each    time.Duration `json:"each"`
	Limit   time.Duration `json:"limit"`
}

func linearFig1Races(o *Options) (list []linearFig1Race) {
	for n := 512; n <= pick(o.Budget, 8192, 65536, 65536); n *= 2 {
		list = append(list, linearFig1Race{
			Methods: linearFig1Curves, N: n, Heads: 8, D: 32,
			Each:  pick(o.Budget, 400*time.Millisecond, 5*time.Second, 30*time.Second),
			Limit: pick(o.Budget, 3*time.Second, time.Minute, time.Hour),
		})
	}
	return list
}

func linearFig1Pieces(o *Options) (list []Piece, err error) {
	for _, c := range linearFig1Races(o) {
		list = append(list, Piece{
			Name: fmt.Sprintf("n%d", c.N), Config: c, Time: raceTime(len(c.Methods), c.Each),
			run: func(w *Work) (any, error) { return c.run(w) },
		})
	}
	return list, nil
}

func (c *linearFig1Race) run(w *Work) ([]timing, error) {
	var list []timed
	for _, m := range c.Methods {
		a := bench.Attention{
			Mechanism: m.Name, Options: m.options(c.Heads, c.D, c.N), ForwardAndBackward: true,
			Shape: attention.Shape{B: 1, H: c.Heads, Hkv: c.Heads, N: c.N, M: c.N, D: c.D, Dv: c.D},
		}
		bc, err := a.Case()
		if err != nil {
			return nil, err
		}
		list = append(list, timed{m.Label, c.N, bc})
	}
	return w.race(list, c.Each, c.Limit)
}

func linearFig1Outcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	var all []timing
	for _, c := range linearFig1Races(o) {
		list, _, err := get[[]timing](r, fmt.Sprintf("n%d", c.N))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	times := report.Table{
		Title: "Milliseconds a sequence, forward and backward, 8 heads of width 32, all keys", Head: []string{"mechanism"},
		Note: none + ": not measured, since it would take too long or not fit in memory.",
	}
	memory := report.Table{
		Title: "Bytes a token beyond inputs, outputs and their gradients", Head: []string{"mechanism"},
		Note: "Scratch of one worker, what a call allocates and what forward keeps for backward. Softmax is tiled here: no N×N matrix is written down, so that it does not run out of memory.",
	}
	time := report.Figure{Title: "Forward and backward, a sequence", XLabel: "tokens N", YLabel: "milliseconds"}
	bytes := report.Figure{Title: "Memory beyond inputs and outputs", XLabel: "tokens N", YLabel: "bytes"}
	for _, c := range linearFig1Races(o) {
		head := fmt.Sprintf("N %d", c.N)
		times.Head, memory.Head = append(times.Head, head), append(memory.Head, head)
	}
	growth := ""
	for _, m := range linearFig1Curves {
		t, b := []string{m.Label}, []string{m.Label}
		var n, ms, extra []float64
		for _, c := range linearFig1Races(o) {
			x, found := findTiming(all, m.Label, c.N)
			if !found {
				t, b = append(t, none), append(b, none)
				continue
			}
			t, b = append(t, digits(x.Ms)), append(b, digits(x.Bytes/float64(c.N)))
			n, ms, extra = append(n, float64(c.N)), append(ms, x.Ms), append(extra, max(x.Bytes, 1))
		}
		if len(n) == 0 {
			continue
		}
		addRow(&times, t...)
		addRow(&memory, b...)
		time.Series = append(time.Series, report.Series{Name: m.Label, X: n, Y: ms})
		bytes.Series = append(bytes.Series, report.Series{Name: m.Label, X: n, Y: extra})
		if last := len(n) - 1; last > 0 {
			growth += fmt.Sprintf("; %s %s", m.Label, digits(ms[last]/ms[last-1]))
		}
	}
	out.Tables = append(out.Tables, times, memory)
	if len(time.Series) > 0 {
		out.Figures = append(out.Figures, Drawing{"time", time}, Drawing{"memory", bytes})
		for _, m := range linearFig1Curves[1:] {
			if n, crossed := crossing(all, softmax.Label, m.Label); crossed {
				out.find("%s is faster than softmax from N = %.0f.", m.Label, n)
			} else if n, slow, fast := shared(all, softmax.Label, m.Label); len(n) > 0 && fast[len(n)-1] < slow[len(n)-1] {
				out.find("%s is faster than softmax at every measured N, %s times at N = %.0f.", m.Label, digits(slow[len(n)-1]/fast[len(n)-1]), n[len(n)-1])
			}
		}
	}
	if growth != "" {
		out.find("Time for twice the tokens, at the largest measured N: %s.", growth[2:])
	}
	return out, nil
}
