// Package demo implements the verb demo: the claims of the project, measured on this machine.
package demo

import (
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Command is the verb demo: the claims, shown on this machine.
type Command struct {
	Out string `short:"o" placeholder:"DIR" help:"Also write scaling.svg and scaling.md to this folder."`
}

// Help are examples.
func (c *Command) Help() string {
	return "Four parts: all forms agree with the textbook, time grows linearly, a small model learns, and writes." + flags.JoinExamples(
		"farfield demo",
		"farfield demo --out pictures",
	)
}

// Run runs the demonstration and writes its page. It returns an error if a measurement
// or the output fails.
func (c *Command) Run(e *env.Env) error {
	if c.Out != "" {
		held, err := env.OwnFolder(c.Out)
		if err != nil {
			return err
		}
		defer held.Release()
	}
	machine := bench.DescribeMachine(0)
	fmt.Fprintf(e.Stdout, "farfield on %v\n", machine)
	if err := showForms(e, 1000); err != nil {
		return err
	}
	s, err := showScaling(e, 1_000_000)
	if err != nil {
		return err
	}
	if c.Out != "" {
		if err := s.save(c.Out, machine); err != nil {
			return err
		}
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

// showScaling plots time over up to most tokens.
func showScaling(e *env.Env, most int) (*scaling, error) {
	fmt.Fprintf(e.Stdout, "\n2. Time of a forward pass over up to %d tokens, causal, %d heads of width %d\n\n", most, demoHeads, demoWidth)
	s, err := measureScaling(most, e.RunInterruptibly, func(n int) {
		if e.IsTerminal {
			fmt.Fprintf(e.Notes(), "\r   %d tokens ", n)
		}
	})
	if e.IsTerminal {
		fmt.Fprint(e.Notes(), "\r\x1b[K")
	}
	if err != nil {
		return nil, err
	}
	s.plot(e.Stdout)
	fmt.Fprintln(e.Stdout)
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "   tokens\tfastmax, linear\tsoftmax\tstate of fastmax\tcache of softmax")
	for i, n := range s.n {
		if i%3 != 0 && i != len(s.n)-1 { // powers of ten
			continue
		}
		t, measured := s.softmaxAt(i)
		soft := display.FormatSeconds(t)
		if !measured {
			soft += " extrapolated"
		}
		fmt.Fprintf(w, "   %.0f\t%s\t%s\t%s\t%s\n", n, display.FormatSeconds(s.linear[i]), soft,
			display.FormatBytes(float64(s.state[i])), display.FormatBytes(s.cache*n))
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	softmax, direct := s.crossovers()
	fmt.Fprintf(e.Stdout, "\n   On this machine the linear form is faster than softmax from N = %s, than its own direct form from N = %s.\n",
		display.FormatCrossover(softmax), display.FormatCrossover(direct))
	return s, nil
}

// save writes the figure and the table into dir.
func (s *scaling) save(dir string, m bench.Machine) error {
	if err := atomicfile.Write(filepath.Join(dir, "scaling.svg"), s.figure().WriteSVG); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, "scaling.md"), func(w io.Writer) error {
		fmt.Fprintf(w, "Causal attention, %d heads of width %d, forward. Machine: %v.\n\n", demoHeads, demoWidth, m)
		return s.table(w)
	})
}
