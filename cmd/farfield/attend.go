package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/safetensors"
	"github.com/farfield-ml/farfield/tensor"
)

// attendCmd is the verb attend: attention and its gradients on arrays from a
// file.
type attendCmd struct {
	Mechanism string `complete:"mechanisms" required:"" xor:"mechanism" placeholder:"NAME" help:"Attention function; with --help its parameters and settings are listed."`
	settings
	Causal         bool     `help:"Query i sees keys j ≤ i + (M-N)."`
	Form           string   `enum:"auto,direct,linear,step" default:"auto" help:"How to compute it: ${enum}."`
	Dropout        string   `complete:"1d,standard,quadratic" placeholder:"KIND" help:"Dropout, as in training: 1d leaves out whole tokens of the prepared q and k, standard channels of them, quadratic products of two channels. Masks of what is kept are read, mask_qtok (B,H,N) and mask_ktok (B,H,M), mask_q1 and mask_k1 of the shapes of q and k, or mask_q2 (B,H,N,D,D) and mask_k2, or drawn if there are none."`
	Rate           *float64 `placeholder:"R" help:"Share that dropout leaves out, below 1; by default what the array rate says."`
	Seed           uint64   `placeholder:"N" default:"1" help:"Of the masks that are drawn, or of --synthetic (${default})."`
	Grad           bool     `help:"Also write dq, dk, dv and d_PARAMETER for the gradient do (or go) of the output."`
	Precision      string   `enum:"f32,f64" default:"f32" help:"Type of computation and output: ${enum}."`
	AllowNonfinite bool     `help:"Accept NaN and infinities in input and output."`
	JSON           bool     `name:"json" help:"Print the plan that ran."`
	Diagnose       bool     `help:"Print how the weights of each head lie: over how many keys they spread, how much they cancel, the smallest denominator. Takes time with N times M."`
	streamed

	In  string `arg:"" optional:"" name:"in" help:"Arrays q, k, v of shape (N,D), (H,N,D) or (B,H,N,D), in .npz or .safetensors. M of k and v, Dv of v and H of k and v may differ. Optional: keymask (B,M) or (M), key_lengths (B), attn_keep (N,M), cu_q and cu_k, log_g (M), (H,M) or (B,H,M) with H of k, do, parameters."`
	Out string `arg:"" optional:"" name:"out" help:"Where o and the gradients go, in .npz or .safetensors."`
}

// settings are the flags that choose among what a mechanism offers.
type settings struct {
	Order *int              `placeholder:"P" help:"Degree of the kernel polynomial."`
	Set   map[string]string `complete:"settings" mapsep:"none" placeholder:"KEY=VALUE" help:"A setting of the mechanism; may be repeated."`
}

// options returns the mechanism's options for heads of width d and sequences of at
// most so many tokens.
func (s settings) options(heads, d, tokens int) (mechanism.Options, error) {
	o := mechanism.Options{Heads: heads, Width: d, Length: tokens, Set: s.Set}
	if s.Order != nil {
		if o.Order = *s.Order; o.Order < 1 {
			return o, inputf("--order: %d is less than 1", o.Order)
		}
	}
	return o, nil
}

func (c *attendCmd) Run(e *env) error {
	if c.Model != "" {
		if err := c.ofModel(); err != nil {
			return err
		}
	} else if _, err := lookupFunction(c.Mechanism); err != nil {
		return input(err)
	}
	if c.Stream || c.Synthetic != "" {
		return c.stream(e)
	}
	if err := c.streamed.refuse(); err != nil {
		return err
	}
	if c.In == "" || c.Out == "" {
		return inputf("needs a file of arrays to read and one to write, as qkv.npz out.npz; or --stream (see farfield attend --help)")
	}
	write, err := writerFor(c.Out, c.In)
	if err != nil {
		return input(err)
	}
	var out []*array.Array
	var ran *attendReport
	err = e.interruptible(func() (err error) {
		if c.Precision == "f64" {
			out, ran, err = attend[float64](c, e.notes())
		} else {
			out, ran, err = attend[float32](c, e.notes())
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := atomicfile.Write(c.Out, func(w io.Writer) error { return write(w, out) }); err != nil {
		return err
	}
	if ran.Weak > 0 {
		fmt.Fprintf(e.notes(), "farfield: %d rows have a denominator that nearly cancels, the first is query %d of head %d of batch row %d\n",
			ran.Weak, ran.WeakAt[2], ran.WeakAt[1], ran.WeakAt[0])
	}
	if c.JSON {
		return printJSON(e.stdout, ran)
	}
	if c.Diagnose {
		return printDiagnosis(e.stdout, ran.Diagnosis)
	}
	return nil
}

// attendReport is the plan that ran.
type attendReport struct {
	Mechanism       string  `json:"mechanism"`
	Form            string  `json:"form"` // mixed where sequences of one call take different forms
	Chunk           int     `json:"chunk,omitempty"`
	Features        int     `json:"features,omitempty"`
	Why             string  `json:"why,omitempty"`
	ISA             string  `json:"isa"`
	Threads         int     `json:"threads"`
	Precision       string  `json:"precision"`
	FLOPs           float64 `json:"flops"` // forward
	Seconds         float64 `json:"seconds"`
	BackwardSeconds float64 `json:"backward_seconds,omitempty"`
	PeakBytes       int64   `json:"peak_bytes"` // of the process
	noticed
	Diagnosis []diagnosed `json:"diagnosis,omitempty"` // of each head of each batch row
}

// noticed are rows that deserve a word. They are counted by the forms that
// keep what the gradient needs, so step alone does not count them.
type noticed struct {
	Counted bool  `json:"rows_counted"`
	Unseen  int64 `json:"unseen_rows"`
	Weak    int64 `json:"weak_rows"`
	WeakAt  []int `json:"first_weak_row,omitempty"` // batch row, head and query, where there is one

	NonFinite int64 `json:"nonfinite_rows"` // counted whatever the form
}

// attend reads, computes and returns the arrays to write. Unknown arrays are
// named on notes.
func attend[T tensor.Float](c *attendCmd, notes io.Writer) ([]*array.Array, *attendReport, error) {
	in, err := openArrays(c.In)
	if err != nil {
		return nil, nil, input(err)
	}
	defer in.Close()
	p, err := readProblem[T](c, in)
	if err != nil {
		return nil, nil, input(err)
	}
	if unknown := p.unknown(in.Names()); len(unknown) > 0 {
		fmt.Fprintf(notes, "farfield: not used: %s\n", strings.Join(escapedAll(unknown), ", "))
	}

	ran := &attendReport{Mechanism: c.Mechanism, ISA: kernel.Active[T]().Name, Threads: par.Threads(), Precision: c.Precision}
	p.plan(ran)
	q, k, v := p.call.Q, p.call.K, p.call.V
	out := tensor.NewHeads[T](q.B, q.H, q.N, v.D)
	var keep *attention.Saved[T]
	if p.call.Form != attention.Step {
		keep = new(attention.Saved[T])
	}
	start := time.Now()
	if err := p.mech.Forward(out, &p.call, keep); err != nil && !errors.Is(err, attention.ErrNonFinite) {
		return nil, nil, input(err)
	}
	ran.Seconds = time.Since(start).Seconds()
	odd, err := nonFinite("o", out, c.AllowNonfinite, notes)
	if err != nil {
		return nil, nil, err
	}

	list := []*array.Array{p.result("o", out)}
	if c.Grad {
		start := time.Now()
		from := out
		if keep == nil { // the step form keeps nothing: differentiate another
			p.call.Form, keep = attention.Auto, new(attention.Saved[T])
			from = tensor.NewHeads[T](q.B, q.H, q.N, v.D)
			if err := p.mech.Forward(from, &p.call, keep); err != nil {
				return nil, nil, input(err)
			}
		}
		g := attention.Grads[T]{
			DQ: tensor.NewHeads[T](q.B, q.H, q.N, q.D),
			DK: tensor.NewHeads[T](k.B, k.H, k.N, k.D),
			DV: tensor.NewHeads[T](v.B, v.H, v.N, v.D),
		}
		if p.decay != nil {
			g.DLogG = tensor.NewHeads[T](k.B, k.H, k.N, 1)
		}
		if err := p.mech.Backward(&g, p.dout, from, &p.call, keep); err != nil {
			return nil, nil, input(err)
		}
		ran.BackwardSeconds = time.Since(start).Seconds()
		list = append(list, p.result("dq", g.DQ), p.result("dk", g.DK), p.result("dv", g.DV))
		for _, x := range []struct {
			name string
			rows tensor.Heads[T]
		}{{"dq", g.DQ}, {"dk", g.DK}, {"dv", g.DV}, {"d_log_g", g.DLogG}} {
			if _, err := nonFinite(x.name, x.rows, c.AllowNonfinite, notes); err != nil {
				return nil, nil, err
			}
		}
		for _, x := range p.mech.Params().All() {
			if _, err := nonFinite("d_"+x.Name, tensor.HeadsOf(x.Grad, 1, 1, 1, len(x.Grad)), c.AllowNonfinite, notes); err != nil {
				return nil, nil, err
			}
			list = append(list, newArray("d_"+x.Name, x.Grad, p.shapes[x.Name]))
		}
		if p.decay != nil {
			list = append(list, newArray("d_log_g", p.decayGrad(g.DLogG.Data), p.decay))
		}
	}
	if keep != nil {
		ran.noticed = noticed{Counted: true, Unseen: keep.Unseen, Weak: keep.Weak}
		if keep.Weak > 0 {
			ran.WeakAt = keep.WeakAt[:]
		}
	}
	ran.NonFinite = odd
	if c.Diagnose {
		heads, err := p.mech.Diagnose(&p.call)
		if err != nil {
			return nil, nil, input(err)
		}
		ran.Diagnosis = diagnosis(heads, q.H)
	}
	ran.PeakBytes = machine.PeakMemory()
	return list, ran, nil
}

// nonFinite counts the rows of a result that are not finite. They are an error unless
// they are allowed, and then a line on notes.
func nonFinite[T tensor.Float](name string, x tensor.Heads[T], allowed bool, notes io.Writer) (int64, error) {
	rows, first := attention.NonFinite(x)
	if rows == 0 {
		return 0, nil
	}
	err := fmt.Errorf("%s: %d of %d rows are %w, the first is row %d of head %d of batch row %d", name, rows, int64(x.B)*int64(x.H)*int64(x.N), attention.ErrNonFinite, first[2], first[1], first[0])
	if !allowed {
		return rows, fmt.Errorf("%w: numbers left the range of the element type, or a denominator is 0; nothing is written (--allow-nonfinite writes them)", err)
	}
	fmt.Fprintf(notes, "farfield: %v\n", err)
	return rows, nil
}

// plan fills in what will run: the plans of all sequences together.
func (p *attendProblem[T]) plan(ran *attendReport) {
	s := p.call.Shape()
	step := s.Form == attention.Step
	switch {
	case p.call.AttnKeep != nil:
		s.Form = attention.Direct
	case step:
		s.Form = attention.Auto
		if p.mech.Traits().Linear {
			s.Form = attention.Linear
		}
	}
	add := func(s attention.Shape) {
		plan := p.mech.Plan(s)
		ran.FLOPs += plan.FLOPs
		switch form := plan.Form.String(); {
		case ran.Form == "":
			ran.Form, ran.Why = form, plan.Why
		case ran.Form != form:
			ran.Form, ran.Why = "mixed", ""
		}
		ran.Chunk = max(ran.Chunk, plan.Chunk)
		ran.Features = plan.F
	}
	switch {
	case p.call.CuQ != nil:
		for i := range len(p.call.CuQ) - 1 {
			s.N = int(p.call.CuQ[i+1] - p.call.CuQ[i])
			s.M = int(p.call.CuK[i+1] - p.call.CuK[i])
			add(s)
		}
	case p.call.KeyLens != nil:
		s.B = 1
		for _, n := range p.call.KeyLens {
			s.M = int(n)
			add(s)
		}
	default:
		add(s)
	}
	if step {
		ran.Form, ran.Why = attention.Step.String(), ""
	}
}

// result is an output array with as many dimensions as the input has.
func (p *attendProblem[T]) result(name string, x tensor.Heads[T]) *array.Array {
	shape := []int{x.B, x.H, x.N, x.D}
	return newArray(name, x.Data, shape[len(shape)-p.rank:])
}

// newArray is array.New for a shape that is known to fit.
func newArray[T tensor.Float](name string, data []T, shape []int) *array.Array {
	var a *array.Array
	var err error
	switch data := any(data).(type) {
	case []float32:
		a, err = array.New(name, data, shape...)
	case []float64:
		a, err = array.New(name, data, shape...)
	}
	if err != nil {
		panic(err)
	}
	return a
}

// openArrays opens a file by its suffix.
func openArrays(path string) (array.Source, error) {
	switch filepath.Ext(path) {
	case ".npz":
		f, err := array.OpenNPZ(path)
		if err != nil {
			return nil, err
		}
		return f, nil
	case ".safetensors":
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s: the suffix is %q, needs .npz or .safetensors", path, filepath.Ext(path))
}

// writerFor returns what writes the format that path's suffix names, of what is
// made from inputs.
func writerFor(path string, inputs ...string) (func(io.Writer, []*array.Array) error, error) {
	if err := checkOutput(path, inputs...); err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".npz":
		return array.WriteNPZ, nil
	case ".safetensors":
		return func(w io.Writer, list []*array.Array) error { return safetensors.Write(w, list, nil) }, nil
	}
	return nil, fmt.Errorf("%s: the suffix is %q, needs .npz or .safetensors", path, filepath.Ext(path))
}

// printJSON prints v, indented, and escapes what a terminal would obey.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapedJSON(b.Bytes()))
	return err
}
