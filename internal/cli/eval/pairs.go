package eval

import (
	"fmt"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/rng"
)

// writeTargets sets the scores of the targets that the model writes for the sources of src, and of what
// needs no model. It returns an error if the model does not fit, or the context ends.
func (c *Command) writeTargets(e *env.Env, r *Report, w *inference.PairWriter, src task.Source) error {
	pairs, ok := src.(*task.TextPairs)
	if !ok {
		return fmt.Errorf("task %s: is none of pairs", src.Spec().Name)
	}
	spec := pairs.Spec()
	split := spec.JudgedSplit()
	if r.Split == task.Valid.String() {
		split = task.Valid
	}
	count := spec.Count[split]
	n := count
	if c.Limit > 0 {
		n = min(n, c.Limit)
	}
	pair := func(i int) task.TextPair {
		if n < count { // the pairs that train.Evaluate takes
			i = rng.New(0).Permute(i, count)
		}
		return pairs.Pair(split, i)
	}
	model := task.TextScore{Name: "model"}
	watch := c.watch(e, &spec, split)
	watch.what = "targets"
	defer watch.bar.Finish()
	for i := range n {
		p := pair(i)
		target, _, err := w.Write(e.Context, p.Source)
		if err != nil {
			return err
		}
		model.Add(target, p.Target)
		watch.show(i+1, n)
	}
	r.Targets = append([]task.TextScore{model}, task.CopyBaselines(func(f func(task.TextPair)) {
		for i := range n {
			f(pair(i))
		}
	})...)
	return nil
}

// printTargets prints the scores of written targets, and which baseline is as good as the model.
func (r *Report) printTargets(e *env.Env) error {
	if len(r.Targets) == 0 {
		return nil
	}
	model := r.Targets[0]
	for _, b := range r.Targets[1:] {
		if b.RougeL >= model.RougeL {
			fmt.Fprintf(e.Stdout, "targets     ROUGE-L of %s is %.4f, the model's %.4f: the baseline is as good or better\n", b.Name, b.RougeL, model.RougeL)
		}
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d targets\texact\tROUGE-1\tROUGE-2\tROUGE-L\t\n", model.Texts)
	for _, s := range r.Targets {
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.4f\t%.4f\t\n", s.Name, s.Exact, s.Rouge1, s.Rouge2, s.RougeL)
	}
	return w.Flush()
}
