package reproduce

import (
	"fmt"

	"github.com/farfield-ml/farfield/report"
)

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
