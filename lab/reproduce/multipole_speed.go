package reproduce

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var multipoleSpeed = Row{
	Name:   "multipole-speed",
	Doc:    "processor time of a head of multipole with a codebook, order 0, and of softmax, in turns on one thread",
	Source: "farfield's own: docs/multipole.md",
	Claim:  "nothing is published; required over softmax at 8192 and 32768 tokens, unmasked: 256 cells, D 64 8 and 30 times, 1024 cells, D 32 4 and 15 times; twice the tokens at most 2.05 times as long",
	pieces: multipoleSpeedPieces, outcome: multipoleSpeedOutcome,
}

type multipoleSpeedConfig struct {
	Cells   int   `json:"cells"`
	D       int   `json:"d"`
	Causal  bool  `json:"causal"`
	Lengths []int `json:"lengths"`
	Rounds  int   `json:"rounds"`
	// Required are the times over softmax by length; 0: none.
	Required map[int]float64 `json:"-"`
}

// multipoleSpeedTime has medians at one length, in milliseconds of processor time.
type multipoleSpeedTime struct {
	N         int     `json:"n"`
	Multipole float64 `json:"multipole_ms"`
	Softmax   float64 `json:"softmax_ms"`
}

func multipoleSpeedConfigs(o *Options) (list []multipoleSpeedConfig) {
	lengths, rounds := []int{8192, 16384, 32768, 65536}, pick(o.Budget, 5, 15, 31)
	for _, x := range []struct {
		cells, d int
		required map[int]float64
	}{{256, 64, map[int]float64{8192: 8, 32768: 30}}, {1024, 32, map[int]float64{8192: 4, 32768: 15}}} {
		list = append(list, multipoleSpeedConfig{x.cells, x.d, false, lengths, rounds, x.required}, multipoleSpeedConfig{x.cells, x.d, true, lengths, rounds, nil})
	}
	return list
}

func (c *multipoleSpeedConfig) name() string {
	name := fmt.Sprintf("cells-%d-d-%d", c.Cells, c.D)
	if c.Causal {
		name += "-causal"
	}
	return name
}

func multipoleSpeedPieces(o *Options) (list []Piece, err error) {
	for _, c := range multipoleSpeedConfigs(o) {
		flops := 0.0
		for _, n := range c.Lengths {
			if n <= longestSoftmax {
				flops += 4 * float64(n) * float64(n) * float64(c.D)
			}
		}
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: float64(c.Rounds+1) * flops, run: func(w *Work) (any, error) { return c.run(w) }})
	}
	return list, nil
}

// longestSoftmax is the number of tokens up to which softmax is timed, too.
const longestSoftmax = 32768

func (c *multipoleSpeedConfig) run(w *Work) (list []multipoleSpeedTime, err error) {
	if processorSeconds() == 0 {
		return nil, errors.New("the processor time of a process is not known on this system")
	}
	threads := par.Threads()
	par.SetThreads(1)
	defer par.SetThreads(threads)
	multi, err := mechanism.New("multipole", mechanism.Options{Heads: 1, KeyHeads: 1, Width: c.D, Set: map[string]string{"cells": strconv.Itoa(c.Cells)}})
	if err != nil {
		return nil, err
	}
	soft, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		return nil, err
	}
	book := multi.Constants().All()[0].Data
	for i, n := range c.Lengths {
		call, out := c.call(n, book), tensor.NewHeads(1, 1, n, c.D)
		run := func(m attention.Mechanism) (ms float64, err error) {
			begin := processorSeconds()
			if err = w.do(func() error { return m.Forward(out, call, nil) }); err != nil {
				return 0, err
			}
			return (processorSeconds() - begin) * 1e3, nil
		}
		if _, err := run(multi); err != nil { // brings memory
			return nil, err
		}
		var multipole, softmax []float64
		for round := range c.Rounds {
			ms, err := run(multi)
			if err != nil {
				return nil, err
			}
			multipole = append(multipole, ms)
			if n <= longestSoftmax {
				if ms, err = run(soft); err != nil {
					return nil, err
				}
				softmax = append(softmax, ms)
			}
			w.reportShare((float64(i) + float64(round+1)/float64(c.Rounds)) / float64(len(c.Lengths)))
		}
		list = append(list, multipoleSpeedTime{n, median(multipole), median(softmax)})
	}
	return list, nil
}

// call returns a call of n tokens. Each key lies near a row of the codebook, drawn for it, so that
// all cells have keys, as those of a codebook of the model's own keys have.
func (c *multipoleSpeedConfig) call(n int, book []float32) *attention.Call {
	draw := func(seed uint64, scale float32) tensor.Heads {
		x := tensor.NewHeads(1, 1, n, c.D)
		for i := range x.Data {
			x.Data[i] = scale * float32(rng.New(seed).Normal(uint64(i)))
		}
		return x
	}
	k := draw(2, 0.5)
	for j := range n {
		row := book[rng.New(4).Intn(uint64(j), c.Cells)*c.D:][:c.D]
		for a, y := range row {
			k.Data[j*c.D+a] += y
		}
	}
	return &attention.Call{Q: draw(1, 1), K: k, V: draw(3, 1), Causal: c.Causal}
}

// median returns the median of x, 0 for none.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

func multipoleSpeedOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	table := report.Table{
		Title: "Milliseconds of processor time, one head, one thread", Head: []string{"cells", "D", "mask", "N", "multipole", "softmax", "times as fast", "required", "over half the tokens"},
		Note: "Medians of turns in one process: multipole, softmax, multipole … Block 32, window 16, order 0. All cells have keys.",
	}
	for _, c := range multipoleSpeedConfigs(o) {
		list, found, err := get[[]multipoleSpeedTime](r, c.name())
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		mask := "none"
		if c.Causal {
			mask = "causal"
		}
		growth := 0.0
		for i, x := range list {
			ratio, required, over, softmax := none, none, none, none
			if x.Softmax > 0 {
				softmax = digits(x.Softmax)
				ratio = digits(x.Softmax / x.Multipole)
			}
			if want := c.Required[x.N]; want > 0 {
				required = digits(want)
				verdict := "reached"
				if x.Softmax/x.Multipole < want {
					verdict = "not reached"
				}
				out.find("%d cells, D %d, %d tokens: %s times as fast as softmax, %s required: %s.", c.Cells, c.D, x.N, ratio, required, verdict)
			}
			if i > 0 && x.N == 2*list[i-1].N {
				times := x.Multipole / list[i-1].Multipole
				growth, over = max(growth, times), digits(times)
			}
			addRow(&table, strconv.Itoa(c.Cells), strconv.Itoa(c.D), mask, strconv.Itoa(x.N), digits(x.Multipole), softmax, ratio, required, over)
		}
		out.find("%d cells, D %d, mask %s: twice the tokens take at most %s times as long, 2.05 required.", c.Cells, c.D, mask, digits(growth))
	}
	if len(table.Rows) > 0 {
		out.Tables = append(out.Tables, table)
	}
	return out, nil
}
