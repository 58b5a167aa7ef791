// Package attend implements the verb attend: attention and its gradients, of arrays and of streams.
package attend

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Command is the verb attend: attention and its gradients on arrays from a
// file.
type Command struct {
	Mechanism string `complete:"mechanisms" required:"" xor:"mechanism" placeholder:"NAME" help:"Attention function; --help lists parameters and settings."`
	flags.Settings
	Causal         bool     `help:"Query i sees keys j ≤ i + (M-N)."`
	Form           string   `enum:"auto,direct,linear,step" default:"auto" help:"Form: ${enum}."`
	Dropout        string   `complete:"1d,standard,quadratic" placeholder:"KIND" help:"Dropout kind: 1d, standard or quadratic."`
	Rate           *float64 `placeholder:"R" help:"Dropout rate, below 1 (the array rate)."`
	Seed           uint64   `placeholder:"N" default:"1" help:"Seed of dropout masks and of --synthetic (${default})."`
	Grad           bool     `help:"Also write dq, dk, dv, d_PARAMETER for the gradient do."`
	AllowNonfinite bool     `help:"Accept NaN and infinities in input and output."`
	JSON           bool     `name:"json" help:"Print the executed plan."`
	Diagnose       bool     `help:"Print entropy, cancellation and least denominator of rows."`
	streamed

	In  string `arg:"" optional:"" name:"in" help:"Arrays q, k, v, in .npz or .safetensors."`
	Out string `arg:"" optional:"" name:"out" help:"Output o and gradients, in .npz or .safetensors."`
}

// request returns the request of the flags for the arrays at path.
func (c *Command) request(path string) *problem.Request {
	return &problem.Request{
		Mechanism: c.Mechanism, Settings: c.Settings, Causal: c.Causal, Form: c.Form, Path: path, AllowNonfinite: c.AllowNonfinite,
		Grad: c.Grad, Dropout: c.Dropout, Rate: c.Rate, Seed: c.Seed,
	}
}

// Run computes the attention of the input arrays or stream. It returns an error if
// flags or arrays are invalid or a file cannot be written.
func (c *Command) Run(e *env.Env) error {
	if c.Model != "" {
		if err := c.ofModel(); err != nil {
			return err
		}
	} else if _, err := flags.LookupFunction(c.Mechanism); err != nil {
		return env.MarkInput(err)
	}
	if c.Stream || c.Synthetic != "" {
		return c.stream(e)
	}
	if err := c.streamed.refuse(); err != nil {
		return err
	}
	if c.In == "" || c.Out == "" {
		return env.InputErrorf("needs a file of arrays to read and one to write, as qkv.npz out.npz; or --stream (see farfield attend --help)")
	}
	write, err := problem.WriterFor(c.Out, c.In)
	if err != nil {
		return env.MarkInput(err)
	}
	var out []*array.Array
	var ran *Report
	err = e.RunInterruptibly(func() (err error) {
		out, ran, err = attend(c, e.Notes())
		return err
	})
	if err != nil {
		return err
	}
	if err := atomicfile.Write(c.Out, func(w io.Writer) error { return write(w, out) }); err != nil {
		return err
	}
	if ran.WeakRows > 0 {
		fmt.Fprintf(e.Notes(), "farfield: %d rows have a denominator that nearly cancels, the first is query %d of head %d of batch row %d\n",
			ran.WeakRows, ran.FirstWeakRow[2], ran.FirstWeakRow[1], ran.FirstWeakRow[0])
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, ran)
	}
	if c.Diagnose {
		return printDiagnosis(e.Stdout, ran.Diagnosis)
	}
	return nil
}

// Report is the JSON result of attend: the plan that was executed, and what it took.
type Report struct {
	Mechanism       string  `json:"mechanism"`
	Form            string  `json:"form"` // mixed where sequences of one call take different forms
	Chunk           int     `json:"chunk,omitempty"`
	Features        int     `json:"features,omitempty"`
	Reason          string  `json:"why,omitempty"`
	ISA             string  `json:"isa"`
	Threads         int     `json:"threads"`
	FLOPs           float64 `json:"flops"` // forward
	Seconds         float64 `json:"seconds"`
	BackwardSeconds float64 `json:"backward_seconds,omitempty"`
	PeakBytes       int64   `json:"peak_bytes"` // of the process
	noticed
	Diagnosis []diagnosed `json:"diagnosis,omitempty"` // of each head of each batch row
}

// noticed counts rows that deserve a remark. The step form does not count them, since
// it keeps nothing for gradients.
type noticed struct {
	Counted      bool  `json:"rows_counted"`
	UnseenRows   int64 `json:"unseen_rows"`
	WeakRows     int64 `json:"weak_rows"`
	FirstWeakRow []int `json:"first_weak_row,omitempty"` // batch row, head and query, where there is one

	NonFiniteRows int64 `json:"nonfinite_rows"` // counted whatever the form
}

// attend reads, computes and returns the arrays to write. Unknown arrays are
// named on notes.
func attend(c *Command, notes io.Writer) ([]*array.Array, *Report, error) {
	in, err := problem.OpenArrays(c.In)
	if err != nil {
		return nil, nil, env.MarkInput(err)
	}
	defer in.Close()
	p, err := problem.ReadProblem(c.request(c.In), in)
	if err != nil {
		return nil, nil, env.MarkInput(err)
	}
	if unknown := p.UnknownNames(in.Names()); len(unknown) > 0 {
		fmt.Fprintf(notes, "farfield: not used: %s\n", strings.Join(display.EscapeAll(unknown), ", "))
	}

	ran := &Report{Mechanism: c.Mechanism, ISA: kernel.Active[float32]().Name, Threads: par.Threads()}
	planProblem(p, ran)
	q, k, v := p.Call.Q, p.Call.K, p.Call.V
	out := tensor.NewHeads(q.B, q.H, q.N, v.D)
	var keep *attention.Saved
	if p.Call.Form != attention.Step {
		keep = new(attention.Saved)
	}
	start := time.Now()
	if err := p.Mechanism.Forward(out, &p.Call, keep); err != nil && !errors.Is(err, attention.ErrNonFinite) {
		return nil, nil, env.MarkInput(err)
	}
	ran.Seconds = time.Since(start).Seconds()
	odd, err := nonFinite("o", out, c.AllowNonfinite, notes)
	if err != nil {
		return nil, nil, err
	}

	list := []*array.Array{p.NewArray("o", out)}
	if c.Grad {
		start := time.Now()
		from := out
		if keep == nil { // the step form keeps nothing: differentiate another
			p.Call.Form, keep = attention.Auto, new(attention.Saved)
			from = tensor.NewHeads(q.B, q.H, q.N, v.D)
			if err := p.Mechanism.Forward(from, &p.Call, keep); err != nil {
				return nil, nil, env.MarkInput(err)
			}
		}
		g := attention.Grads{
			DQ: tensor.NewHeads(q.B, q.H, q.N, q.D),
			DK: tensor.NewHeads(k.B, k.H, k.N, k.D),
			DV: tensor.NewHeads(v.B, v.H, v.N, v.D),
		}
		if p.DecayShape != nil {
			g.DLogG = tensor.NewHeads(k.B, k.H, k.N, 1)
		}
		if err := p.Mechanism.Backward(&g, p.DOut, from, &p.Call, keep); err != nil {
			return nil, nil, env.MarkInput(err)
		}
		ran.BackwardSeconds = time.Since(start).Seconds()
		list = append(list, p.NewArray("dq", g.DQ), p.NewArray("dk", g.DK), p.NewArray("dv", g.DV))
		for _, x := range []struct {
			name string
			rows tensor.Heads
		}{{"dq", g.DQ}, {"dk", g.DK}, {"dv", g.DV}, {"d_log_g", g.DLogG}} {
			if _, err := nonFinite(x.name, x.rows, c.AllowNonfinite, notes); err != nil {
				return nil, nil, err
			}
		}
		for _, x := range p.Mechanism.Params().All() {
			if _, err := nonFinite("d_"+x.Name, tensor.HeadsOf(x.Grad, 1, 1, 1, len(x.Grad)), c.AllowNonfinite, notes); err != nil {
				return nil, nil, err
			}
			list = append(list, problem.NewArray("d_"+x.Name, x.Grad, p.Shapes[x.Name]))
		}
		if p.DecayShape != nil {
			list = append(list, problem.NewArray("d_log_g", p.SumDecayGradient(g.DLogG.Data), p.DecayShape))
		}
	}
	if keep != nil {
		ran.noticed = noticed{Counted: true, UnseenRows: keep.UnseenCount, WeakRows: keep.WeakCount}
		if keep.WeakCount > 0 {
			ran.FirstWeakRow = keep.WeakAt[:]
		}
	}
	ran.NonFiniteRows = odd
	if c.Diagnose {
		heads, err := p.Mechanism.Diagnose(&p.Call)
		if err != nil {
			return nil, nil, env.MarkInput(err)
		}
		ran.Diagnosis = diagnosis(heads, q.H)
	}
	ran.PeakBytes = machine.PeakMemory()
	return list, ran, nil
}

// nonFinite counts the rows of a result that are not finite. They are an error unless
// they are allowed, and then a line on notes.
func nonFinite(name string, x tensor.Heads, allowed bool, notes io.Writer) (int64, error) {
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

// planProblem sets the plan in ran: the plans of all sequences together.
func planProblem(p *problem.Problem, ran *Report) {
	s := p.Call.Shape()
	step := s.Form == attention.Step
	switch {
	case p.Call.AttnKeep != nil:
		s.Form = attention.Direct
	case step:
		s.Form = attention.Auto
		if p.Mechanism.Traits().Linear {
			s.Form = attention.Linear
		}
	}
	add := func(s attention.Shape) {
		plan := p.Mechanism.Plan(s)
		ran.FLOPs += plan.FLOPs
		switch form := plan.Form.String(); {
		case ran.Form == "":
			ran.Form, ran.Reason = form, plan.Reason
		case ran.Form != form:
			ran.Form, ran.Reason = "mixed", ""
		}
		ran.Chunk = max(ran.Chunk, plan.Chunk)
		ran.Features = plan.F
	}
	switch {
	case p.Call.CuQ != nil:
		for i := range len(p.Call.CuQ) - 1 {
			s.N = int(p.Call.CuQ[i+1] - p.Call.CuQ[i])
			s.M = int(p.Call.CuK[i+1] - p.Call.CuK[i])
			add(s)
		}
	case p.Call.KeyLens != nil:
		s.B = 1
		for _, n := range p.Call.KeyLens {
			s.M = int(n)
			add(s)
		}
	default:
		add(s)
	}
	if step {
		ran.Form, ran.Reason = attention.Step.String(), ""
	}
}
