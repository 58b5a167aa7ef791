package reproduce

import (
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/report"
)

var fastFig3 = Row{
	Name:   "fast-fig3",
	Doc:    "time of a head over N and D: softmax, Fastmax1 and Fastmax2, and where they cross",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, figure 3 and section 3.1 (RTX A6000)",
	Claim:  "Fastmax is linear in N; at D = 128 Fastmax1 is ahead of softmax from N > 1400; masked Fastmax takes D times as long as unmasked",
	pieces: fig3Pieces, outcome: fig3Outcome,
}

// fig3Width and fig3From are the published statement: at this width Fastmax1 is
// ahead from more tokens than that.
const (
	fig3Width = 128
	fig3From  = 1400
)

var fig3Widths = []int{16, 32, 64, fig3Width}

type fig3Config struct {
	D       int           `json:"d"`
	Lengths []int         `json:"lengths"`
	Causal  int           `json:"causal"` // length at which causal calls are timed, too
	Each    time.Duration `json:"each"`
	Limit   time.Duration `json:"limit"` // of a call
}

// fig3Curves are what is timed: Fastmax in the linear form, as in the paper.
var fig3Curves = []struct {
	method
	form attention.Form
}{
	{softmax, attention.Auto},
	{method{Label: "fastmax 1", Name: "fastmax", Order: 1}, attention.Linear},
	{method{Label: "fastmax 2", Name: "fastmax", Order: 2}, attention.Linear},
}

const causalCurve = " causal"

func fig3Configs(o *Options) (list []fig3Config) {
	for _, d := range fig3Widths {
		c := fig3Config{
			D: d, Causal: 4096, Each: pick(o.Budget, 250*time.Millisecond, 2*time.Second, 20*time.Second),
			Limit: pick(o.Budget, time.Second, 20*time.Second, 10*time.Minute),
		}
		for n := 128; n <= pick(o.Budget, 16384, 65536, 1<<20); n *= 2 {
			c.Lengths = append(c.Lengths, n)
		}
		list = append(list, c)
	}
	return list
}

func fig3Pieces(o *Options) (list []Piece, err error) {
	for _, c := range fig3Configs(o) {
		list = append(list, Piece{
			Name: fmt.Sprintf("d%d", c.D), Config: c, Time: raceTime(len(fig3Curves)*(len(c.Lengths)+1), c.Each),
			run: func(w *Work) (any, error) { return c.run(w) },
		})
	}
	return list, nil
}

func (c *fig3Config) run(w *Work) ([]timing, error) {
	var list []timed
	add := func(i, n int, causal bool) error {
		m := &fig3Curves[i]
		a := bench.Attention{
			Mechanism: m.Name, Options: m.options(1, c.D, n),
			Shape: attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: c.D, Dv: c.D, Causal: causal, Form: m.form},
		}
		bc, err := a.Case()
		if err != nil {
			return err
		}
		name := m.Label
		if causal {
			name += causalCurve
		}
		list = append(list, timed{name, n, bc})
		return nil
	}
	for i := range fig3Curves {
		for _, n := range c.Lengths {
			if err := add(i, n, false); err != nil {
				return nil, err
			}
		}
		if err := add(i, c.Causal, true); err != nil {
			return nil, err
		}
	}
	return w.race(list, c.Each, c.Limit)
}

func fig3Outcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	times := report.Table{
		Title: "Milliseconds of a forward pass, one head, all keys",
		Head:  []string{"D", "mechanism"},
		Note:  fmt.Sprintf("%s: not measured, since it would take too long or not fit in memory.", none),
	}
	crossings := report.Table{
		Title: "Tokens from which Fastmax in the linear form is faster than softmax",
		Head:  []string{"D", "Fastmax1", "Fastmax2", "counted, F(D+1)/D: p = 1", "p = 2", "published"},
	}
	masks := report.Table{
		Title: "Time of causal over time of all keys",
		Head:  []string{"D", "N", "Fastmax1", "Fastmax2", "softmax", "published, Fastmax"},
	}
	configs := fig3Configs(o)
	for _, n := range configs[0].Lengths {
		times.Head = append(times.Head, fmt.Sprintf("N %d", n))
	}
	worst := 0.0
	for _, c := range configs {
		list, found, err := get[[]timing](r, fmt.Sprintf("d%d", c.D))
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		f := report.Figure{Title: fmt.Sprintf("Forward pass of one head, D %d", c.D), XLabel: "tokens N", YLabel: "milliseconds"}
		soft := softmax.Label
		one, two := fig3Curves[1].Label, fig3Curves[2].Label
		for _, m := range fig3Curves {
			cells := []string{fmt.Sprint(c.D), m.Label}
			var x, y []float64
			for _, n := range c.Lengths {
				if t, found := findTiming(list, m.Label, n); found {
					x, y = append(x, float64(n)), append(y, t.Ms)
					cells = append(cells, digits(t.Ms))
				} else {
					cells = append(cells, none)
				}
			}
			addRow(&times, cells...)
			f.Series = append(f.Series, report.Series{Name: m.Label, X: x, Y: y})
		}
		out.Figures = append(out.Figures, Drawing{fmt.Sprintf("time-d%d", c.D), f})

		published := none
		if c.D == fig3Width {
			published = fmt.Sprintf("Fastmax1 %d", fig3From)
		}
		length := func(b string) string {
			if n, crossed := crossing(list, soft, b); crossed {
				return fmt.Sprintf("%.0f", n)
			}
			n, slow, fast := shared(list, soft, b)
			switch {
			case len(n) == 0:
				return none
			case fast[0] < slow[0]:
				return fmt.Sprintf("below %.0f", n[0])
			}
			return fmt.Sprintf("beyond %.0f", n[len(n)-1])
		}
		d := float64(c.D)
		addRow(&crossings, fmt.Sprint(c.D), length(one), length(two), fmt.Sprintf("%.0f", (d+1)*(d+1)/d), fmt.Sprintf("%.0f", packedN0(c.D)), published)
		if c.D == fig3Width {
			if n, slow, fast := shared(list, soft, one); len(n) > 0 {
				held := true
				for i := range n {
					held = held && (n[i] <= fig3From || fast[i] < slow[i])
				}
				verb := "does not hold"
				if held {
					verb = "holds"
				}
				from := fmt.Sprintf("from N = %s on", length(one))
				if _, crossed := crossing(list, soft, one); !crossed && fast[0] < slow[0] {
					from = fmt.Sprintf("at every measured N, from %.0f on", n[0])
				}
				out.find("D = %d: that Fastmax1 is ahead from N > %d %s here; it is %s.", fig3Width, fig3From, verb, from)
			}
		}
		ratio := func(name string) (float64, string) {
			all, a := findTiming(list, name, c.Causal)
			causal, b := findTiming(list, name+causalCurve, c.Causal)
			if !a || !b {
				return 0, none
			}
			return causal.Ms / all.Ms, digits(causal.Ms / all.Ms)
		}
		r1, t1 := ratio(one)
		r2, t2 := ratio(two)
		_, ts := ratio(soft)
		worst = max(worst, r1, r2)
		addRow(&masks, fmt.Sprint(c.D), fmt.Sprint(c.Causal), t1, t2, ts, fmt.Sprint(c.D))
	}
	out.Tables = append(out.Tables, times, crossings, masks)
	if worst > 0 {
		out.find("Causal Fastmax takes at most %s times as long as unmasked, where D times is published.", digits(worst))
	}
	return out, nil
}
