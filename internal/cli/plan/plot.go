package plan

import (
	"fmt"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
)

// plotWidths are the widths D of the figure.
var plotWidths = []int{8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128}

// plot draws the lengths from which on the linear form is chosen, of one head.
func (c *Command) plot() error {
	ext := filepath.Ext(c.Plot)
	if ext != ".svg" && ext != ".png" {
		return env.InputErrorf("--plot: the suffix of %s is %q, needs .svg or .png", c.Plot, ext)
	}
	if err := env.CheckOutput(c.Plot); err != nil {
		return env.InputErrorf("--plot: %w", err)
	}
	f, err := c.figure()
	if err != nil {
		return err
	}
	write := f.WriteSVG
	if ext == ".png" {
		write = f.WritePNG
	}
	return atomicfile.Write(c.Plot, write)
}

func (c *Command) figure() (*report.Figure, error) {
	row, err := flags.LookupFunction(c.Mechanism)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	title := row.Name
	if c.Order != nil {
		title += fmt.Sprintf(" of order %d", *c.Order)
	} else if row.Order > 0 {
		title += fmt.Sprintf(" of order %d", row.Order)
	}
	f := &report.Figure{
		Title:  fmt.Sprintf("Tokens from which on the linear form is chosen: %s, %s kernels", title, kernel.Active[float32]().Name),
		XLabel: "D", YLabel: "N",
	}
	for _, causal := range []bool{false, true} {
		mask := "unmasked"
		if causal {
			mask = "causal"
		}
		var forward, backward, counted report.Series
		add := func(s *report.Series, d, n int) {
			if n > 0 {
				s.X, s.Y = append(s.X, float64(d)), append(s.Y, float64(n))
			}
		}
		for _, d := range plotWidths {
			o, err := c.Options(c.Mechanism, 1, d, 0)
			if err != nil {
				return nil, err
			}
			mech, err := mechanism.New(c.Mechanism, o)
			if err != nil {
				return nil, env.MarkInput(err)
			}
			if mech.Traits().CausalOnly && !causal {
				break
			}
			if !mech.Traits().Linear {
				return nil, env.InputErrorf("--plot: %s has no linear form", c.Mechanism)
			}
			s := c.shape()
			s.B, s.H, s.Hkv, s.D, s.Dv, s.Causal = 1, 1, 1, d, d, causal
			x := SwitchLengths(mech, s)
			add(&forward, d, x.Forward)
			add(&backward, d, x.Backward)
			add(&counted, d, x.Counted)
		}
		forward.Name, backward.Name, counted.Name = mask+", forward", mask+", backward", mask+", operations counted"
		counted.Style = report.DashedLine
		for _, s := range []report.Series{forward, counted, backward} {
			if len(s.X) > 0 {
				f.Series = append(f.Series, s)
			}
		}
	}
	return f, nil
}
