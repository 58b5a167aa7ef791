package runs

import (
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/train"
)

// CountTableBits returns the bits per byte of count tables on the windows of a score and on the
// whole judged split, and the number of tokens that the tables count. It returns an error if
// the text cannot be read.
func CountTableBits(text *task.Text, s train.Score) (scored, whole [3]float64, learned int, err error) {
	spec := text.Spec()
	judged := text.Tokens(spec.JudgedSplit())
	windows, all, learned, err := text.WindowNgramLosses(spec.JudgedSplit(), int(s.Samples))
	for i := range whole {
		whole[i] = all[i] * float64(judged.Len()) / float64(judged.Bytes()) / math.Ln2
		scored[i] = windows[i] * float64(s.Tokens) / float64(s.Bytes) / math.Ln2
	}
	if int(s.Samples) >= spec.Count[spec.JudgedSplit()] || s.Bytes == 0 {
		scored = whole
	}
	return scored, whole, learned, err
}

// SetTable adds to the report the scores of count tables on the text. It returns an error if the
// text cannot be read.
func (r *Report) SetTable(text *task.Text) error {
	scored, whole, learned, err := CountTableBits(text, r.Score)
	if r.Table = &scored; scored != whole {
		r.WholeTable = &whole
	}
	if learned < text.Tokens(task.Train).Len() {
		r.TableTokens = learned
	}
	return err
}

// Report is the result of a training.
type Report struct {
	Run   string `json:"run"`
	Task  string `json:"task"`
	Split string `json:"split"` // that it is judged by
	Steps int    `json:"steps"`
	Best  int    `json:"best_step,omitempty"` // whose weights are judged
	train.Score
	train.Detail
	Head           *train.HeadFit  `json:"head,omitempty"`    // of a frozen model
	Classes        []string        `json:"classes,omitempty"` // names of the rows and columns of Confusion, if they have any
	Verdict        *Verdict        `json:"verdict,omitempty"`
	Baselines      []task.Baseline `json:"baselines,omitempty"`
	BaselinesError string          `json:"baselines_error,omitempty"`           // why there are none
	Table          *[3]float64     `json:"table_bits_per_byte,omitempty"`       // of order 0, 1 and 2, on the samples of the score
	WholeTable     *[3]float64     `json:"whole_table_bits_per_byte,omitempty"` // on the whole split, where the score is of a part
	TableTokens    int             `json:"table_tokens,omitempty"`              // that the tables learned from, where it is not all
	Sample         string          `json:"sample,omitempty"`
}

// Print prints the result. It returns an error if the output fails.
func (r *Report) Print(e *env.Env) error {
	name := map[string]string{"valid": "validation", "test": "test"}[r.Split]
	r.Verdict.Print(e)
	of := ""
	if r.Best > 0 {
		of = fmt.Sprintf(", of update %d", r.Best)
	}
	if r.Table == nil {
		fmt.Fprintf(e.Stdout, "%-12s%s %s, loss %s over %d samples%s\n", name, r.Metric, display.FormatValue(r.Metric, r.Value), display.FormatValue(r.Metric, r.Loss), r.Samples, of)
		PrintBaselines(e, r.Metric, r.Baselines, r.BaselinesError)
		r.printHead(e)
		if note := r.SampleNote(); note != "" {
			fmt.Fprintf(e.Stdout, "note        %s\n", note)
		}
		r.printMore(e, "eval --model %s")
		return nil
	}
	fmt.Fprintf(e.Stdout, "%-12sloss %.4f nats, %.4f bits per byte over %d bytes%s\n", name, r.Loss, r.Bits, r.Bytes, of)
	from := ""
	if r.TableTokens > 0 {
		from = fmt.Sprintf(", learned from the first %d tokens", r.TableTokens)
	}
	if r.WholeTable != nil {
		from += ", on the same bytes"
	}
	fmt.Fprintf(e.Stdout, "table       %.4f bits per byte from counts of the two tokens before (order 2), %.4f of one, %.4f of none%s\n", r.Table[2], r.Table[1], r.Table[0], from)
	r.printMore(e, "generate --model %s --prompt TEXT")
	if r.Sample == "" {
		return nil
	}
	fmt.Fprintf(e.Stdout, "sample\n\n")
	w := token.NewWriter(e.Stdout)
	if _, err := w.Write([]byte(r.Sample)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(e.Stdout)
	return err
}

// FitAdvice changes the advice of baselines to something that a run of c has not done yet.
func FitAdvice(c *train.Config, baselines []task.Baseline) {
	for i := range baselines {
		switch b := &baselines[i]; {
		case c.FirstContext > 0: // samples have begun short already
			b.Advice = ""
		case c.Freeze:
			b.Advice = strings.Replace(b.Advice, "train longer", "fine-tune all weights with --freeze=false", 1)
		}
	}
}

// printHead prints how the head of a frozen model was fitted.
func (r *Report) printHead(e *env.Env) {
	if h := r.Head; h != nil {
		chosen := "without held-out samples"
		if h.Held > 0 {
			chosen = fmt.Sprintf("chosen by %d held-out samples (accuracy %.4f)", h.Held, h.Accuracy)
		}
		fmt.Fprintf(e.Stdout, "head        C = %.4g %s; fitted to all %d samples but the %s part\n", h.Strength, chosen, h.Samples, r.Split)
	}
}

// PrintBaselines prints the scores of the baselines, and the number of samples that
// they learned from, or why there are none.
func PrintBaselines(e *env.Env, metric task.Metric, list []task.Baseline, failed string) {
	if failed != "" {
		fmt.Fprintf(e.Stdout, "baselines   none: %s\n", failed)
	}
	for _, b := range list {
		from := ""
		if b.Learned > 0 {
			from = fmt.Sprintf(", learned from %d samples", b.Learned)
		}
		fmt.Fprintf(e.Stdout, "baseline    %s %s: %s%s\n", metric, display.FormatValue(metric, b.Score), b.Name, from)
	}
}

// printMore prints the commands that may follow.
func (r *Report) printMore(e *env.Env, command string) {
	if !e.IsQuiet {
		fmt.Fprintf(e.Stdout, "more        farfield "+command+"\n", r.Run)
	}
}
