package runs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// Results of comparing a score with another.
const (
	ResultBetter = "better"
	ResultSame   = "no difference"
	ResultWorse  = "worse"
)

// Verdict compares a score with the best baseline of its task.
type Verdict struct {
	Text       string  `json:"text"`
	Result     string  `json:"result"`
	Baseline   string  `json:"baseline"`
	Difference float64 `json:"difference"` // by the metric; above 0 where the score is the better one
}

// Measure says how scores are measured.
type Measure struct {
	Name string
	task.Metric
}

// bitsPerByte is the measure of texts.
const bitsPerByte = "bits per byte"

// JudgedScore returns the number by which s is judged, and how it is measured.
func JudgedScore(s train.Score) (float64, Measure) {
	if s.HasBits() {
		return s.Bits, Measure{bitsPerByte, s.Metric}
	}
	return s.Value, Measure{string(s.Metric), s.Metric}
}

// FormatScore formats a score.
func (m Measure) FormatScore(x float64) string {
	if m.Metric == task.Accuracy {
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("%.4g", x)
}

// FormatDifference formats the distance of two scores.
func (m Measure) FormatDifference(x float64) string {
	if m.Metric == task.Accuracy {
		return fmt.Sprintf("%.1f points", 100*math.Abs(x))
	}
	return fmt.Sprintf("%.3g %s", math.Abs(x), m.Name)
}

// IndependentTargets returns the number of independent targets that would give the standard error
// of s. Targets of one sample may be right or wrong together; if the error is not known, each
// sample counts as one target.
func IndependentTargets(s train.Score) int64 {
	if s.Error > 0 && s.Metric == task.Accuracy {
		return min(s.Tokens, max(1, int64(s.Value*(1-s.Value)/(s.Error*s.Error))))
	}
	return min(s.Tokens, s.Samples)
}

// SamplingError returns the standard error of a score that is measured on n independent targets, or
// 0 if it is not known. A share of few targets is moved towards one half (Agresti and Coull 1998),
// because a share of 0 or 1 has an error, too.
func (m Measure) SamplingError(x float64, n int64) float64 {
	if m.Metric != task.Accuracy || n == 0 {
		return 0
	}
	p := (x*float64(n) + 2) / float64(n+4)
	return math.Sqrt(p * (1 - p) / float64(n))
}

// Difference is the error with which the difference of two scores is known.
type Difference struct {
	Standard    float64 // standard error; 0: not known
	Freedom     float64 // degrees of freedom of Standard
	Comparisons int     // that are made together with this one
}

// SampledDifference returns the Difference of two scores of many samples, if only they are
// compared.
func SampledDifference(standardError float64) Difference {
	return Difference{standardError, math.Inf(1), 1}
}

// Factor returns by how many standard errors scores have to differ.
func (d Difference) Factor() float64 { return criticalFactor(d.Freedom, d.Comparisons) }

// FormatFactor formats the factor.
func (d Difference) FormatFactor() string {
	if f := d.Factor(); f != 2 {
		return fmt.Sprintf("%.3g", f)
	}
	return "two"
}

// CompareScores compares x with y. They count as equal if they differ by less than d allows.
func (m Measure) CompareScores(x, y float64, d Difference) string {
	switch {
	case x == y || math.Abs(x-y) < d.Factor()*d.Standard:
		return ResultSame
	case m.IsBetter(x, y):
		return ResultBetter
	}
	return ResultWorse
}

// JudgeScore compares a score with the best of its baselines. It returns nil if there are none, or
// if they cannot be compared.
func JudgeScore(s train.Score, baselines []task.Baseline) *Verdict {
	x, m := JudgedScore(s)
	best, ok := FindBestBaseline(baselines, m)
	if !ok || sampleNote(s, baselines) != "" {
		return nil
	}
	n, measuredOn := IndependentTargets(s), ""
	switch {
	case n == 0:
	case n < s.Tokens:
		measuredOn = fmt.Sprintf(" on %d targets of %d samples", s.Tokens, s.Samples)
	default:
		measuredOn = fmt.Sprintf(" on %d targets", n)
	}
	own, other := m.SamplingError(x, n), m.SamplingError(best.Score, n)
	if m.Metric == task.MSE {
		own, other = s.Error, best.Error
	}
	return newVerdict(x, m, best, SampledDifference(math.Hypot(own, other)), measuredOn)
}

// sampleNote says that baselines are of more samples than a score, where the error of such a
// difference is not known; "": they can be compared.
func sampleNote(s train.Score, baselines []task.Baseline) string {
	if s.Metric == task.Accuracy {
		return ""
	}
	for _, b := range baselines {
		if int64(b.Judged) > s.Samples {
			return fmt.Sprintf("Baselines are of %d samples, the score is of %d: they are not compared.", b.Judged, s.Samples)
		}
	}
	return ""
}

// SampleNote returns a note if the baselines were scored on more samples than the score; otherwise
// "".
func (r *Report) SampleNote() string { return sampleNote(r.Score, r.Baselines) }

// FindBestBaseline returns the baseline with the best score by m, and false if list is empty.
func FindBestBaseline(list []task.Baseline, m Measure) (best task.Baseline, ok bool) {
	for i, b := range list {
		if i == 0 || m.IsBetter(b.Score, best.Score) {
			best = b
		}
	}
	return best, len(list) > 0
}

// NewVerdict compares x with a baseline; d is the error of their difference.
func NewVerdict(x float64, m Measure, best task.Baseline, d Difference) *Verdict {
	return newVerdict(x, m, best, d, "")
}

// newVerdict is NewVerdict of scores that are measured on targets or samples; "": on how
// many is not known.
func newVerdict(x float64, m Measure, best task.Baseline, d Difference, measuredOn string) *Verdict {
	v := &Verdict{Baseline: best.Name, Difference: x - best.Score, Result: m.CompareScores(x, best.Score, d)}
	if m.IsBetter(0, 1) {
		v.Difference = -v.Difference
	}
	against := fmt.Sprintf("%s against %s", m.FormatScore(x), m.FormatScore(best.Score))
	if v.Result == ResultSame || m.Metric == task.Accuracy { // the difference does not name the metric
		against = m.Name + " " + against
	}
	switch v.Result {
	case ResultBetter:
		v.Text = fmt.Sprintf("Better than the baseline %s by %s: %s.", best.Name, m.FormatDifference(v.Difference), against)
	case ResultWorse:
		v.Text = fmt.Sprintf("The baseline %s is better by %s: %s. Use it, or %s.", best.Name, m.FormatDifference(v.Difference), against, cmp.Or(best.Advice, "train longer"))
	default:
		v.Text = fmt.Sprintf("No better than the baseline %s: %s", best.Name, against)
		if d.Standard > 0 && v.Difference != 0 {
			v.Text += fmt.Sprintf(", less than %s standard errors (%s) apart", d.FormatFactor(), m.FormatDifference(d.Factor()*d.Standard))
		}
		v.Text += measuredOn + "."
		if best.Advice != "" && best.Score != m.limit() {
			v.Text += fmt.Sprintf(" To go beyond it, %s.", best.Advice)
		}
	}
	return v
}

// limit returns the best possible score.
func (m Measure) limit() float64 {
	if m.Metric == task.Accuracy {
		return 1
	}
	return 0
}

// Print prints the verdict, if there is one, as the first line of a result.
func (v *Verdict) Print(e *env.Env) {
	if v != nil {
		fmt.Fprintf(e.Stdout, "verdict     %s\n", v.Text)
	}
}

// TableBaselines returns the bits per byte of count tables as baselines.
func TableBaselines(bits [3]float64) []task.Baseline {
	return []task.Baseline{
		{Name: "counts of single tokens", Score: bits[0]},
		{Name: "counts after one token", Score: bits[1]},
		{Name: "counts after two tokens", Score: bits[2]},
	}
}

// ResultFile holds the result of a training, in the folder of its run.
const (
	ResultFile    = "result.json"
	resultVersion = 1
	mostResult    = 1 << 24 // bytes
)

// WriteResult writes the result of a training to the folder of its run. It returns an
// error if the file cannot be written.
func WriteResult(dir string, r *Report) error {
	return atomicfile.Write(filepath.Join(dir, ResultFile), func(w io.Writer) error {
		return display.PrintJSON(w, struct {
			Version int `json:"version"`
			*Report
		}{resultVersion, r})
	})
}

// ReadResult reads the result of the training in dir. It returns nil if the training has not ended,
// and an error if the file is invalid.
func ReadResult(dir string) (*Report, error) {
	path := filepath.Join(dir, ResultFile)
	var r struct {
		Version int `json:"version"`
		Report
	}
	err := infile.ReadJSON(path, mostResult, &r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Version != resultVersion {
		return nil, fmt.Errorf("%s: version is %d, this program reads %d", path, r.Version, resultVersion)
	}
	if n := len(r.Classes); n > 0 && n != len(r.Confusion) {
		return nil, fmt.Errorf("%s: classes are %d, rows of confusion %d", path, n, len(r.Confusion))
	}
	for i, row := range r.Confusion {
		if len(row) != len(r.Confusion) {
			return nil, fmt.Errorf("%s: row %d of confusion has %d columns, needs %d", path, i, len(row), len(r.Confusion))
		}
	}
	return &r.Report, nil
}

// ComparedBaselines returns the baselines of the task; for a text, the count tables.
func (r *Report) ComparedBaselines() []task.Baseline {
	if r.Table != nil {
		return TableBaselines(*r.Table)
	}
	return r.Baselines
}

// WholeBaselines returns ComparedBaselines for the whole split.
func (r *Report) WholeBaselines() []task.Baseline {
	if r.WholeTable != nil {
		return TableBaselines(*r.WholeTable)
	}
	return r.ComparedBaselines()
}

// classScore says how well a model recognises one class.
type classScore struct {
	Name      string
	Targets   int64
	Recall    float64 // share of the class that is taken for it; NaN: it has no targets
	Precision float64 // share of the class among its predictions; NaN: no predictions
	Mistaken  string  // the other class that it is taken for most often; "": none
}

// classScores returns recall and precision of each class from a confusion matrix.
func classScores(confusion [][]int64, names []string) []classScore {
	name := func(class int) string {
		if class < len(names) {
			return names[class]
		}
		return fmt.Sprint(class)
	}
	list := make([]classScore, len(confusion))
	for class, row := range confusion {
		s := classScore{Name: name(class)}
		var taken, most int64
		for other, n := range row {
			s.Targets += n
			taken += confusion[other][class]
			if other != class && n > most {
				most, s.Mistaken = n, name(other)
			}
		}
		s.Recall, s.Precision = float64(row[class])/float64(s.Targets), float64(row[class])/float64(taken)
		list[class] = s
	}
	return list
}

// share formats a part of 1, and – where there is none.
func share(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*x), ".0") + " %"
}
