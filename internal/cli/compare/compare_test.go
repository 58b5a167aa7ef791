package compare

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// A curve of one look has a mark, which is all that there is to see; training losses and final
// scores are drawn beside it.
func TestCurvesOfOneLookAreDrawn(t *testing.T) {
	group := &runGroup{Name: "softmax"}
	for i := range 2 {
		look := train.Eval{Eval: train.EvalLook, Step: 50, Split: "valid"}
		look.Loss, look.Metric, look.Value = 2-float64(i), task.Accuracy, 0.5
		final := look
		final.Eval, final.Step, final.Split = "test", 100, "test"
		r := &runs.TrainedRun{History: &train.History{Evals: []train.Eval{look, final}}}
		for step := range 100 {
			r.History.Steps = append(r.History.Steps, train.Step{Step: step + 1, Loss: 3})
		}
		r.Final = &r.History.Evals[1]
		group.runs = append(group.runs, r)
	}
	_, m := runs.JudgedScore(group.runs[0].Final.Score)
	x := &Comparison{Metric: m.Name, measure: m, Groups: []*runGroup{group}, Baselines: []task.Baseline{{Name: "rule", Score: 0.3}}}
	seen := map[string]bool{}
	for _, s := range x.curves() {
		seen[s.Figure.Title] = true
		lines := len(s.Figure.Series)
		if last := s.Figure.Series[lines-1]; last.Name == "baseline rule" {
			if lines--; last.X[0] != 0 {
				t.Errorf("%s: the baseline is drawn from %g on, want 0", s.Figure.Title, last.X[0])
			}
		}
		if lines != 2 {
			t.Errorf("%s: %d series of 2 runs", s.Figure.Title, lines)
		}
		for _, series := range s.Figure.Series {
			if len(series.X) == 1 && series.Style != report.SolidLine {
				t.Errorf("%s: a point without a mark", s.Figure.Title)
			}
		}
	}
	for _, want := range []string{"Training loss over updates", "Validation loss over updates", "Validation accuracy over seconds", "Final loss over updates", "Final accuracy over updates"} {
		if !seen[want] {
			t.Errorf("there is no %q, but %v", want, seen)
		}
	}
}
