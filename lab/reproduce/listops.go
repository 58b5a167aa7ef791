package reproduce

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/report"
)

var listops = Row{
	Name:   "listops",
	Doc:    "accuracy of expressions of 500 to 2000 tokens after the published number of updates, at equal updates and at equal seconds",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, table 1",
	Claim:  "softmax 38.37 %, Fastmax1 37.20, Fastmax2 37.40, linear 16.13, Informer 36.95, Reformer 37.00",
	Seeds:  true, Tunes: true,
	pieces: listopsPieces, outcome: listopsOutcome,
}

// listopsPublished are accuracies in percent.
var listopsPublished = map[string]float64{
	softmax.Label: 38.37, published1.Label: 37.20, published2.Label: 37.40, linear.Label: 16.13, informer.Label: 36.95, reformer.Label: 37.00,
}

// listopsLessons are the whole training; the default of encoders for as many seconds; what half an
// hour of softmax on one core gives; and the whole training of mechanisms that take hours for it.
var listopsLessons = lessons(func(o *Options) (list []*lesson, err error) {
	type part struct {
		name    string
		steps   int
		equal   bool
		methods []method
	}
	parts := []part{
		{"listops", 5000, false, []method{softmax, farThird2, published1, published2, linear, taylorshift}},
		{"listops-seconds", 5000, true, []method{farThird2}},
		{"listops-short", 1900, true, []method{softmax, performer, reformer, informer, linformer}},
		{"listops-long", 5000, false, []method{performer, reformer, informer}},
	}
	if o.Budget == Quick {
		parts = []part{{"listops", 200, false, []method{softmax, farThird2}}}
	}
	for _, x := range parts {
		l, err := expressions(x.name, x.steps)
		if err != nil {
			return nil, err
		}
		l.Methods, l.EqualSeconds, l.Seeds = x.methods, x.equal, pick(o.Budget, 1, 1, 3)
		list = append(list, l)
	}
	return list, nil
})

// expressions returns a lesson on expressions that grow to their published length. The mean
// over thousands of positions hides the few that matter from a new model.
func expressions(name string, steps int) (*lesson, error) {
	l, err := presetLesson(name, "lra-listops", steps, nil)
	if err != nil {
		return nil, err
	}
	c := &l.Config
	c.Batch, c.FirstContext, c.FirstBatch = 16, 128, 256
	c.Rate, c.EvalSamples, c.FinalSamples = 2e-3, 500, 10000
	c.WarmUp = steps / 10
	c.EvalEvery, c.SaveEvery = steps/20, steps/20
	l.Length, l.Vocab, l.Baseline = 2000, 18, true
	return l, nil
}

// listopsPieces leave out the speed of lessons without softmax: times of different races are not compared.
func listopsPieces(o *Options) ([]Piece, error) {
	list, err := speedPieces(listopsLessons, o)
	return slices.DeleteFunc(list, func(p Piece) bool { return p.Name == "listops-seconds-speed" || p.Name == "listops-long-speed" }), err
}

func listopsOutcome(o *Options, r *Results) (*Outcome, error) {
	return listopsLessons.outcome(func(out *Outcome, list []scored) error {
		race := arenaTable()
		t := report.Table{
			Title: "Beside the published table", Head: []string{"training", "mechanism", "published, %", "here, %", "± of 10,000 samples"},
			Note: "Published models have the same shape, and rows of different programs: linear attention's is the arena's own, which pads without masks." +
				" The program of FAST's authors computes another function than the printed one: [arena](arena.md) has both. Two more seeds of the two leaders take 5.6 hours of one core, by the seconds above: `farfield-lab reproduce listops --budget hour --seeds 3 --pieces '^listops-(softmax|linear)-seed-[23]'`." +
				" The whole training of Performer, Reformer and Informer takes 6 hours: `farfield-lab reproduce listops --budget hour --pieces '^listops-long'`.",
		}
		var base *result // softmax of the whole training, with the times of its race
		var times []updateSpeed
		for i := range list {
			s := &list[i]
			speeds, _, err := get[[]updateSpeed](r, speedPiece(s.lesson))
			if err != nil {
				return err
			}
			if own := s.resultOf(&softmax); own != nil && !s.EqualSeconds {
				base, times = own, speeds
			} else if own == nil && base != nil {
				s.Results, speeds = append([]result{*base}, s.Results...), times
			}
			out.compareArena(&race, s, speeds)
			for _, x := range s.Results {
				published := none
				if v := listopsPublished[x.Label]; v > 0 {
					published = fmt.Sprintf("%.2f", v)
				}
				addRow(&t, s.Name, x.Label, published, fmt.Sprintf("%.2f", 100*x.Value), fmt.Sprintf("%.2f", 100*deviationOf(x.Value, float64(x.Runs[0].Score.Samples))))
			}
		}
		if len(race.Rows) > 0 {
			out.Tables = append(out.Tables, race)
		}
		out.Tables = append(out.Tables, t)
		return nil
	})(o, r)
}
