package reproduce

import (
	"slices"
	"testing"
)

// TestShift has every mechanism of the table learn expressions for two updates.
func TestShift(t *testing.T) {
	lists, err := shiftLessons(&Options{Budget: Hour})
	if err != nil || len(lists) != 3 {
		t.Fatalf("%d lessons, %v", len(lists), err)
	}
	l := lists[0]
	c := &l.Config
	c.TaskSet = map[string]string{"min": "20", "max": "40"}
	c.Steps, c.WarmUp, c.EvalEvery, c.SaveEvery, c.Batch, c.EvalSamples, c.FinalSamples = 2, 0, 1, 2, 2, 2, 4
	c.Model.Layers, c.Model.Width = 1, 16
	l.Baseline = false
	var tiny lessons = func(*Options) ([]*lesson, error) { return lists[:1], nil }
	row := taylorShiftAccuracy
	row.pieces = tiny.pieces
	row.outcome = tiny.outcome(accuracies(shiftPublished, nil, ""))
	out, err := row.Run(t.Context(), &Options{Out: t.TempDir()}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	table := out.Tables[1]
	if len(table.Rows) != 8 || !slices.Equal(table.Rows[1][:3], []string{"listops6", "taylorshift", "46.10"}) {
		t.Errorf("table %+v", table)
	}
	for name, of := range shiftPublished {
		for label := range of {
			if !slices.ContainsFunc(l.Methods, func(m method) bool { return m.Label == label }) {
				t.Errorf("%s: %s is published, but not made", name, label)
			}
		}
	}
}
