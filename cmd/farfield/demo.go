package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
)

// demoCmd is the verb demo: the claims, shown on this machine.
type demoCmd struct {
	Out string `short:"o" placeholder:"DIR" help:"Also write the figure (scaling.svg) and the table (scaling.md) there."`
}

// Help are examples.
func (c *demoCmd) Help() string {
	return "Three parts: all forms agree with the textbook, time grows linearly, a small model learns." + examples(
		"farfield demo",
		"farfield demo --out pictures",
	)
}

func (c *demoCmd) Run(e *env) error {
	if c.Out != "" {
		held, err := own(c.Out)
		if err != nil {
			return err
		}
		defer held.Release()
	}
	machine := bench.DescribeMachine(0)
	fmt.Fprintf(e.stdout, "farfield on %v\n", machine)
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
func showForms(e *env, n int) error {
	fmt.Fprintf(e.stdout, "\n1. One attention, every form: causal fastmax over %d tokens, float32 against float64\n\n", n)
	var list []agreement
	err := e.interruptible(func() (err error) {
		list, err = agreements(n)
		return err
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 3, ' ', 0)
	for _, a := range list {
		fmt.Fprintf(w, "   %s\t%.1f digits\n", a.form, a.digits)
	}
	return w.Flush()
}

// showScaling plots time over up to most tokens.
func showScaling(e *env, most int) (*scaling, error) {
	fmt.Fprintf(e.stdout, "\n2. Time of a forward pass over up to %d tokens, causal, %d heads of width %d\n\n", most, demoHeads, demoWidth)
	s, err := measureScaling(most, e.interruptible, func(n int) {
		if e.tty {
			fmt.Fprintf(e.notes(), "\r   %d tokens ", n)
		}
	})
	if e.tty {
		fmt.Fprint(e.notes(), "\r\x1b[K")
	}
	if err != nil {
		return nil, err
	}
	s.plot(e.stdout)
	fmt.Fprintln(e.stdout)
	w := tabwriter.NewWriter(e.stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "   tokens\tfastmax, linear\tsoftmax\tstate of fastmax\tcache of softmax")
	for i, n := range s.n {
		if i%3 != 0 && i != len(s.n)-1 { // powers of ten
			continue
		}
		t, measured := s.softmaxAt(i)
		soft := secondsText(t)
		if !measured {
			soft += " extrapolated"
		}
		fmt.Fprintf(w, "   %.0f\t%s\t%s\t%s\t%s\n", n, secondsText(s.linear[i]), soft,
			bytesText(float64(s.state[i])), bytesText(s.cache*n))
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	softmax, direct := s.crossovers()
	fmt.Fprintf(e.stdout, "\n   On this machine the linear form is faster than softmax from N = %s, than its own direct form from N = %s.\n",
		crossoverText(softmax), crossoverText(direct))
	return s, nil
}

// crossoverText writes a length by its first two digits.
func crossoverText(n float64) string {
	if n == 0 {
		return "(not met)"
	}
	digits := math.Pow(10, math.Floor(math.Log10(n))-1)
	return fmt.Sprintf("%.0f", math.Round(n/digits)*digits)
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
