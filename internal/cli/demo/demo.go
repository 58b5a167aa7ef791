// Package demo implements the verb demo: a small trained model, before and after its softmax is
// exchanged for attention of linear cost, measured on this machine.
package demo

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Command is the verb demo.
type Command struct {
	Out   string `short:"o" placeholder:"DIR" help:"Also write demo.svg, demo.png and demo.md to this folder."`
	Train bool   `help:"Instead compare all forms of one attention, and train a model on the source of the Go toolchain; minutes."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "A small language model, which the program carries, writes a few lines. Its softmax attention is exchanged for multipole, whose cost is linear in the length. " +
		"Then both read one text, and time, memory and quality are drawn over its length, beside the model with its window alone. A session is saved and goes on after a restart." + flags.JoinExamples(
		"farfield demo",
		"farfield demo --out pictures",
		"farfield demo --train",
	)
}

// Run runs the demonstration. It returns an error if flags are invalid, a measurement or the output
// fails, or e.Context ends.
func (c *Command) Run(e *env.Env) error {
	if c.Train {
		if c.Out != "" {
			return env.InputErrorf("--out: is %s, but --train draws no pictures", c.Out)
		}
		return c.train(e)
	}
	if c.Out != "" {
		held, err := env.OwnFolder(c.Out)
		if err != nil {
			return err
		}
		defer held.Release()
	}
	dir, err := os.MkdirTemp("", "farfield-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return show(e, dir, c.Out, standard)
}

// train shows that all forms of one attention agree, and a training.
func (c *Command) train(e *env.Env) error {
	fmt.Fprintf(e.Stdout, "farfield on %v\n", bench.DescribeMachine(0))
	if err := showForms(e, 1000); err != nil {
		return err
	}
	name, training, err := demoTraining()
	if err != nil {
		return err
	}
	return showTraining(e, name, training)
}

// showForms prints how near every form comes to the textbook.
func showForms(e *env.Env, n int) error {
	fmt.Fprintf(e.Stdout, "\n1. One attention, every form: causal fastmax over %d tokens, float32 against float64\n\n", n)
	var list []agreement
	err := e.RunInterruptibly(func() (err error) {
		list, err = agreements(n)
		return err
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 3, ' ', 0)
	for _, a := range list {
		fmt.Fprintf(w, "   %s\t%.1f digits\n", a.form, a.digits)
	}
	return w.Flush()
}
