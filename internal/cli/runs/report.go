package runs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// ReportFile is the page in the folder of a run.
const ReportFile = "report.html"

// TrainedRun holds what the folder of a run records.
type TrainedRun struct {
	Dir, name string
	Config    train.Config
	History   *train.History
	Final     *train.Eval // that the run is judged by; nil: it has not ended
	Result    *Report     // nil: it has not ended, or another program trained it
}

// ReadRun reads the records of the run in the folder dir. It returns an error if dir is
// no run or a record is invalid.
func ReadRun(dir string) (*TrainedRun, error) {
	config, err := ReadRunConfig(dir)
	if err != nil {
		return nil, err
	}
	r := &TrainedRun{Dir: dir, name: filepath.Base(filepath.Clean(dir)), Config: config}
	if r.History, err = train.ReadHistory(dir); err != nil {
		return nil, err
	}
	if n := len(r.History.Evals); n > 0 && r.History.Evals[n-1].Eval != train.EvalLook && r.History.Evals[n-1].Step == r.CountUpdates() {
		// A run that is lengthened has the evaluation of its former end.
		if at := r.CountUpdates(); at == config.Steps || config.Patience > 0 && !slices.Contains(config.Lengthened, at) {
			r.Final = &r.History.Evals[n-1]
		}
	}
	result, err := ReadResult(dir)
	if err == nil && result != nil && r.Final != nil && result.Steps == r.Final.Step { // not of a run that went on
		r.Result = result
	}
	return r, err
}

// CountUpdates returns the number of updates that were made.
func (r *TrainedRun) CountUpdates() int {
	if n := len(r.History.Steps); n > 0 {
		return r.History.Steps[n-1].Step
	}
	return 0
}

// TotalSeconds returns how long the run has taken so far.
func (r *TrainedRun) TotalSeconds() float64 {
	var s float64
	if n := len(r.History.Steps); n > 0 {
		s = r.History.Steps[n-1].Elapsed
	}
	if n := len(r.History.Evals); n > 0 {
		s = max(s, r.History.Evals[n-1].Elapsed)
	}
	return s
}

// Validations returns the evaluations on the validation set during training.
func (r *TrainedRun) Validations() (list []train.Eval) {
	for _, v := range r.History.Evals {
		if v.Eval == train.EvalLook {
			list = append(list, v)
		}
	}
	return list
}

// verdict is a sentence on how good the model is.
func (r *TrainedRun) verdict() string {
	if r.Result != nil && r.Result.Verdict != nil {
		return r.Result.Verdict.Text
	}
	if r.Final != nil {
		x, m := JudgedScore(r.Final.Score)
		none := "No baseline is known."
		if r.Result != nil {
			none = cmp.Or(r.Result.SampleNote(), none)
		}
		return fmt.Sprintf("%s: %s on %d samples (%s). %s", display.CapitaliseFirst(m.Name), m.FormatScore(x), r.Final.Samples, r.Final.Split, none)
	}
	text := fmt.Sprintf("Not finished: %d of %d updates", r.CountUpdates(), r.Config.Steps)
	if looks := r.Validations(); len(looks) > 0 {
		x, m := JudgedScore(looks[len(looks)-1].Score)
		text += fmt.Sprintf(", validation %s %s so far", m.Name, m.FormatScore(x))
	}
	return text + "."
}

// WriteReport writes the page of the run in dir to the file out. text is a sample that its model
// wrote; "": none. It returns an error if the run cannot be read or out cannot be written.
func WriteReport(out, dir, text string) error {
	r, err := ReadRun(dir)
	if err != nil {
		return err
	}
	page := r.page()
	if text != "" {
		page.Sections = append(page.Sections, report.Section{Title: "Sample", Text: "By the checkpoint that the run is judged by.", Code: text})
	}
	return atomicfile.Write(out, page.WriteHTML)
}

// page is the page of the run: verdict, scores, curves.
func (r *TrainedRun) page() *report.Page {
	c := &r.Config
	page := &report.Page{Title: "Training of " + r.name, Verdict: r.verdict(), Origin: report.DescribeBuild("farfield train --config config.json")}
	page.Origin.Config, page.Origin.Seeds = *c, []uint64{c.Seed}
	page.Origin.Duration = time.Duration(r.TotalSeconds() * float64(time.Second))
	page.Lead = fmt.Sprintf("%s by %s, layers %d, width %d, context %d: %d of %d updates.",
		c.Task, cmp.Or(c.Model.Mechanism, "no attention"), c.Model.Layers, c.Model.Width, c.Model.Context, r.CountUpdates(), c.Steps)
	add := func(title string, t *report.Table) {
		if len(t.Rows) > 0 {
			page.Sections = append(page.Sections, report.Section{Title: title, Table: t})
		}
	}
	if r.Result != nil {
		x, m := JudgedScore(r.Result.Score)
		add("Score", scoreTable(r.Result.Split, x, m, r.Result.ComparedBaselines()))
		add("By class", classTable(r.Result.Confusion, r.Result.Classes))
	}
	page.Sections = append(page.Sections, r.curves()...)
	table := &report.Table{Head: []string{"update", "part", "loss", "score", "seconds"}}
	all := r.History.Evals
	every := (len(all) + mostEvaluations - 1) / mostEvaluations
	if every > 1 {
		table.Note = fmt.Sprintf("One of %d; all %d are in metrics.jsonl.", every, len(all))
	}
	for i, v := range all {
		x, m := JudgedScore(v.Score)
		if (i+1)%max(every, 1) != 0 && v.Eval == train.EvalLook {
			continue
		}
		part := v.Split
		if v.Eval != train.EvalLook {
			part += ", " + v.Eval
		}
		if r.Final == &all[i] && r.Result != nil && r.Result.Best > 0 {
			part += fmt.Sprintf(", of update %d", r.Result.Best)
		}
		table.Head[3] = m.Name
		table.Rows = append(table.Rows, []string{strconv.Itoa(v.Step), part, display.FormatValue(v.Metric, v.Loss), m.FormatScore(x), fmt.Sprintf("%.0f", v.Elapsed)})
	}
	add("Evaluations", table)
	return page
}

// scoreTable returns a table of the score and the baselines.
func scoreTable(split string, x float64, m Measure, baselines []task.Baseline) *report.Table {
	t := &report.Table{Head: []string{"", m.Name}, Rows: [][]string{{"this model", m.FormatScore(x)}}, Note: "On the " + split + " part."}
	for _, b := range baselines {
		t.Rows = append(t.Rows, []string{b.Name, m.FormatScore(b.Score)})
	}
	return t
}

// classTable has a row for each class.
func classTable(confusion [][]int64, names []string) *report.Table {
	t := &report.Table{Head: []string{"class", "targets", "recall", "precision", "mistaken for"},
		Note: "Recall: of the samples of the class, the share that the model recognised. Precision: of the samples that the model put into the class, the share that belongs there. The last column is the wrong class that samples of this one got most often."}
	for _, s := range classScores(confusion, names) {
		t.Rows = append(t.Rows, []string{s.Name, strconv.FormatInt(s.Targets, 10), share(s.Recall), share(s.Precision), s.Mistaken})
	}
	return t
}

// lossUnit returns the unit of losses.
func (r *TrainedRun) lossUnit() string {
	for _, v := range r.History.Evals {
		if v.HasBits() {
			return "nats a token"
		}
	}
	return "loss"
}

// curves are figures over the updates.
func (r *TrainedRun) curves() (list []report.Section) {
	var loss, rate, norm, checked, score report.Series
	loss.Name, checked.Name = "training", "validation"
	rate.Style, norm.Style, loss.Style = report.PlainLine, report.PlainLine, report.PlainLine
	for _, some := range SplitRestarts(r.History.Steps) {
		var mean train.Step
		for _, s := range some {
			mean.Loss += s.Loss / float64(len(some))
			mean.Rate += s.Rate / float64(len(some))
			mean.GradNorm += s.GradNorm / float64(len(some))
		}
		at := float64(some[len(some)-1].Step)
		for _, to := range []struct {
			s *report.Series
			y float64
		}{{&loss, mean.Loss}, {&rate, mean.Rate}, {&norm, mean.GradNorm}} {
			to.s.X, to.s.Y = append(to.s.X, at), append(to.s.Y, to.y)
		}
	}
	var m Measure
	evals := r.Validations()
	if len(evals) == 0 {
		evals = r.History.Evals
	}
	for _, v := range evals {
		if v.Split != task.Valid.String() {
			continue
		}
		checked.X, checked.Y = append(checked.X, float64(v.Step)), append(checked.Y, v.Loss)
		var x float64
		x, m = JudgedScore(v.Score)
		score.Name = "validation"
		score.X, score.Y = append(score.X, float64(v.Step)), append(score.Y, x)
	}
	add := func(title, unit string, all ...report.Series) {
		f := &report.Figure{Title: title, XLabel: "updates", YLabel: unit, XLinear: true, YLinear: true}
		for _, s := range all {
			if len(s.X) > 0 {
				f.Series = append(f.Series, s)
			}
		}
		if len(f.Series) > 0 {
			list = append(list, report.Section{Figure: f})
		}
	}
	var finalLoss, finalScore report.Series
	if f := r.Final; f != nil && len(r.Validations()) > 0 { // else it is among the evaluations
		x, _ := JudgedScore(f.Score)
		name, at := "final, "+f.Split, []float64{float64(f.Step)}
		finalLoss, finalScore = report.Series{Name: name, X: at, Y: []float64{f.Loss}}, report.Series{Name: name, X: at, Y: []float64{x}}
	}
	add("Loss", r.lossUnit(), loss, checked, finalLoss)
	if m.Metric == task.Accuracy && r.Result != nil {
		add("Score", m.Name, append([]report.Series{score, finalScore}, BaselineSeries(r.Result.ComparedBaselines(), m, 1, float64(r.CountUpdates()))...)...)
	} else if m.Metric == task.Accuracy {
		add("Score", m.Name, score, finalScore)
	}
	add("Learning rate", "", rate)
	add("Norm of the gradient before clipping", "", norm)
	if len(list) > 0 {
		list[0].Title = "Curves"
	}
	return list
}

// BaselineSeries returns a horizontal line for the best baseline, as a series of a figure.
func BaselineSeries(baselines []task.Baseline, m Measure, from, to float64) []report.Series {
	best, ok := FindBestBaseline(baselines, m)
	if !ok {
		return nil
	}
	return []report.Series{{Name: "baseline " + best.Name, X: []float64{from, to}, Y: []float64{best.Score, best.Score}, Style: report.LevelLine}}
}

// Limits of a page.
const (
	curvePoints     = 500
	mostEvaluations = 15 // rows
)

// SplitRestarts divides the updates into at most as many parts as a curve has points; a curve shows
// the mean of each part.
func SplitRestarts(steps []train.Step) [][]train.Step {
	n := min(len(steps), curvePoints)
	list := make([][]train.Step, n)
	for i := range list {
		list[i] = steps[i*len(steps)/n : (i+1)*len(steps)/n]
	}
	return list
}
