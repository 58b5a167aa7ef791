package reproduce

import (
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/report"
)

// hasten gives a lesson of expressions three times the rate of its preset, below the
// full budget: for hundreds of updates nothing but the commonest class is learned, and
// at 1e-3 most of the mechanisms are not through with that when the budget is spent.
func (l *lesson) hasten(o *Options) {
	if c := &l.Config; o.Budget != Full && strings.HasPrefix(c.Task, "listops") {
		c.Rate, c.MinRate = 3*c.Rate, 3*c.MinRate
	}
}

// accuracies puts published accuracies, in percent by task and mechanism, beside those
// of trainings.
func accuracies(published map[string]map[string]float64, note string) func(*Outcome, []scored) error {
	return func(out *Outcome, list []scored) error {
		t := report.Table{Title: "Accuracy in percent", Head: []string{"task", "mechanism", "published", "here"}, Note: note}
		for _, s := range list {
			for _, x := range s.Results {
				cell := none
				if v, found := published[s.Name][x.Label]; found {
					cell = fmt.Sprintf("%.2f", v)
				}
				addRow(&t, s.Name, x.Label, cell, fmt.Sprintf("%.2f", 100*x.Value))
			}
		}
		out.Tables = append(out.Tables, t)
		return nil
	}
}
