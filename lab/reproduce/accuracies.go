package reproduce

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/report"
)

// brief holds task settings below the full budget: expressions of 40 to 200 tokens, which
// are learned within minutes. On expressions of hundreds of tokens most mechanisms still
// answer with the commonest class at the end of the budget.
var brief = map[string]map[string]string{
	"listops":  {"above": "40", "below": "200"},
	"listops6": {"min": "40", "max": "200"},
}

// hasten gives a lesson of expressions three times the rate of its preset, below the
// full budget, for the same reason.
func (l *lesson) hasten(o *Options) {
	if c := &l.Config; o.Budget != Full && brief[c.Task] != nil {
		c.Rate, c.MinRate = 3*c.Rate, 3*c.MinRate
	}
}

// accuracies puts published accuracies, in percent by task and mechanism, beside the
// accuracies of trainings. Published numbers of the labels other belong to other functions.
func accuracies(published map[string]map[string]float64, other []string, note string) func(*Outcome, []scored) error {
	return func(out *Outcome, list []scored) error {
		t := report.Table{Title: "Accuracy in percent", Head: []string{"task", "mechanism", "published", "here"}, Note: note}
		for _, s := range list {
			for _, x := range s.Results {
				cell := none
				if v, found := published[s.Name][x.Label]; found {
					cell = fmt.Sprintf("%.2f", v)
					if slices.Contains(other, x.Label) {
						cell += otherMark
					}
				}
				addRow(&t, s.Name, x.Label, cell, fmt.Sprintf("%.2f", 100*x.Value))
			}
		}
		out.Tables = append(out.Tables, t)
		return nil
	}
}
