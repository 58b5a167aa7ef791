package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// describeRun prints the configuration of a new run.
func describeRun(e *env.Env, t *train.Trainer, dir string) {
	c, src := t.Config(), t.Source()
	m := c.Model
	if text, ok := src.(*task.Text); ok {
		from := ""
		if text.Corpus.Files > 1 || text.Corpus.Skipped > 0 {
			from = fmt.Sprintf("%d files, %d skipped as binary, ", text.Corpus.Files, text.Corpus.Skipped-text.Corpus.NotUTF8)
		}
		if n := text.Corpus.NotUTF8; n > 0 {
			from += fmt.Sprintf("%d as not UTF-8 (bytelm reads them), ", n)
		}
		if text.Corpus.IsMapped {
			from += "read from a copy in the folder of temporary files, "
		}
		unit := text.Vocab.Kind()
		if unit == token.KindWords {
			unit = "tokens"
		}
		judged := ""
		if n := text.Tokens(task.Test).Len(); n > 0 {
			judged = fmt.Sprintf(", %d to be judged by", n)
		}
		fmt.Fprintf(e.Stdout, "data        %s: %s%d %s to learn from, %d to validate%s\n",
			display.Escape(text.Corpus.Name), from, text.Tokens(task.Train).Len(), unit, text.Tokens(task.Valid).Len(), judged)
	} else {
		fmt.Fprintf(e.Stdout, "task        %s\n", display.Escape(runs.DescribeData(c, src.Spec())))
	}
	if ignored := task.IgnoredFiles(src); ignored != "" {
		fmt.Fprintf(e.Stdout, "ignored     files: %s\n", display.Escape(ignored))
	}
	if cutter, ok := src.(task.TruncationReporter); ok {
		if cut, all := cutter.CountTruncated(); cut > 0 {
			inputs := "texts"
			if src.Spec().Channels > 0 {
				inputs = "sequences"
			}
			fmt.Fprintf(e.Stdout, "truncated   %d of %d %s, to %d positions; --task-set length=N sees more\n", cut, all, inputs, src.Spec().Length)
		}
	}
	if c.Init != "" {
		what := "all weights are trained"
		switch {
		case c.Freeze:
			what = "its weights stay, a linear head is fitted (--freeze=false trains all weights)"
		case c.Adapters > 0:
			what = fmt.Sprintf("adapters of rank %d are trained", c.Adapters)
		}
		fmt.Fprintf(e.Stdout, "start       %s; %s\n", display.Escape(c.Init), what)
	}
	attention, positions := "no attention", ""
	if m.Mechanism != "" {
		attention = describeAttention(m)
		if c.FarEvery > 1 {
			attention += fmt.Sprintf(" --far-every %d", c.FarEvery)
		}
	}
	switch {
	case m.Kind == model.Convolutional:
	case m.Positions == model.NoPosition:
		positions = ", no positions"
	default:
		positions = fmt.Sprintf(", %s positions", m.Positions)
	}
	fmt.Fprintf(e.Stdout, "model       %s, %d layers of width %d, %d heads%s, %d parameters\n",
		attention, m.Layers, m.Width, m.Heads, positions, t.Model().Params().Size())
	if c.Freeze {
		spec := src.Spec()
		fitted, parts := spec.Count[task.Train], "train"
		if spec.JudgedSplit() == task.Test {
			fitted, parts = fitted+spec.Count[task.Valid], "train and validation"
		}
		fmt.Fprintf(e.Stdout, "run         %s: logistic regression on the vectors of %d samples (%s) of up to %d positions\n", display.Escape(dir), fitted, parts, m.Context)
		return
	}
	grow := ""
	if c.FirstContext > 0 && c.FirstContext < m.Context {
		grow = fmt.Sprintf(", in sequences of %d at first", c.FirstContext)
	}
	samples := fmt.Sprint(c.Batch)
	if c.Accumulate > 1 {
		samples = fmt.Sprintf("%d times %d", c.Accumulate, c.Batch)
	}
	what := fmt.Sprintf("samples of up to %d positions", m.Context)
	if c.Model.Parts == 2 {
		what = fmt.Sprintf("pairs of up to %d positions each", m.Context)
	}
	if _, ok := src.(task.WindowSource); ok {
		samples, what = fmt.Sprintf("%s×%d", samples, m.Context), "tokens"
	}
	updates := fmt.Sprintf("updates %d to %d", t.StepsDone()+1, c.Steps)
	if t.HasEnded() {
		updates = fmt.Sprintf("finished, %d updates", t.StepsDone())
	}
	fmt.Fprintf(e.Stdout, "run         %s: %s of %s %s%s\n", display.Escape(dir), updates, samples, what, grow)
}

// describeAttention names the mechanism of a model with its settings, as flags.
func describeAttention(m model.Config) string {
	var b strings.Builder
	b.WriteString(m.Mechanism)
	if m.Order > 0 {
		fmt.Fprintf(&b, " --order %d", m.Order)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Set)) {
		fmt.Fprintf(&b, " --set %s=%s", key, m.Set[key])
	}
	if m.AttentionNorm {
		b.WriteString(" --attention-norm")
	}
	if m.Decay != "" && m.Decay != model.NoDecay {
		fmt.Fprintf(&b, " --decay %s", m.Decay)
	}
	return b.String()
}
