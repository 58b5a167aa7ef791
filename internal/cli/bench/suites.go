package bench

import (
	"errors"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
)

// benchAttention is the suite attention.
type benchAttention struct {
	variants
	Form      []string      `enum:"auto,direct,linear,step" default:"auto" placeholder:"FORM" help:"Form: ${enum}."`
	Causal    bool          `help:"Query i sees keys j ≤ i + (M-N)."`
	Direction []string      `enum:"forward,backward" default:"forward" placeholder:"DIR" help:"Direction: ${enum} (alone)."`
	N         []flags.Count `name:"n" short:"n" default:"256,1024,4096" placeholder:"N" help:"Queries (${default})."`
	M         flags.Count   `name:"m" short:"m" placeholder:"M" help:"Keys (N)."`
	D         []flags.Count `name:"d" short:"d" default:"16,32,64" placeholder:"D" help:"Width of queries and keys of a head (${default})."`
	Dv        flags.Count   `placeholder:"DV" help:"Width of values (D)."`
	Heads     []flags.Count `default:"1" placeholder:"H" help:"Heads (${default})."`
	benchFlags
}

// Help returns the long help text with the columns and examples.
func (c *benchAttention) Help() string {
	return c.columns(attentionOperations) + flags.JoinExamples(
		"farfield bench attention -n 1024,4096 -d 32 --causal",
		"farfield bench attention --mechanism fastmax,softmax --direction forward,backward --plot times.svg",
		"farfield bench attention -n 256,1024 --threads 1,2 --json",
	)
}

func (c *benchAttention) Run(e *env.Env) error {
	list, err := c.list(c.Form...)
	if err != nil {
		return err
	}
	s := &sweep{title: "farfield bench attention", axis: "tokens"}
	if c.Causal {
		s.title += ", causal"
	}
	for _, direction := range c.Direction {
		err := s.addCases(e, grid{c.Heads, c.D, c.N, list}, func(p point) (*bench.Case, error) {
			return bench.Attention{
				Mechanism: p.name, Options: p.options(), Backward: direction == "backward",
				Shape: attention.Shape{
					B: 1, H: p.heads, Hkv: p.heads, N: p.n, M: or(c.M, p.n), D: p.d, Dv: or(c.Dv, p.d),
					Causal: c.Causal, Form: forms[p.form],
				},
			}.Case()
		})
		if err != nil {
			return err
		}
	}
	return c.measure(e, s)
}

// benchDecode is the suite decode.
type benchDecode struct {
	variants
	N     []flags.Count `name:"n" short:"n" default:"1024,4096,16384" placeholder:"N" help:"Tokens before the measured one (${default}), m of output."`
	D     []flags.Count `name:"d" short:"d" default:"16,32,64" placeholder:"D" help:"Width of queries and keys of a head (${default})."`
	Dv    flags.Count   `placeholder:"DV" help:"Width of values (D)."`
	Heads []flags.Count `default:"1" placeholder:"H" help:"Heads (${default})."`
	benchFlags
}

// Help returns the long help text with the columns and examples.
func (c *benchDecode) Help() string {
	return c.columns("Useful operations of a token are those of its state, 4F(Dv+1) a head in the linear form with F features, and of its window; – marks states whose operations are not counted.") + flags.JoinExamples(
		"farfield bench decode -n 1024,16384 -d 64 --heads 8",
		"farfield bench decode --mechanism fastmax --time 100ms --json",
	)
}

func (c *benchDecode) Run(e *env.Env) error {
	list, err := c.list("step")
	if err != nil {
		return err
	}
	s := &sweep{title: "farfield bench decode: a token", axis: "tokens before it"}
	err = s.addCases(e, grid{c.Heads, c.D, c.N, list}, func(p point) (*bench.Case, error) {
		return bench.Attention{
			Mechanism: p.name, Options: p.options(),
			Shape: attention.Shape{B: 1, H: p.heads, Hkv: p.heads, M: p.n, D: p.d, Dv: or(c.Dv, p.d)},
		}.Decode()
	})
	if err != nil {
		return err
	}
	return c.measure(e, s)
}

// benchGemm is the suite gemm.
type benchGemm struct {
	N         []flags.Count `name:"n" short:"n" default:"256,1024" placeholder:"N" help:"Rows of the product (${default})."`
	M         flags.Count   `name:"m" short:"m" placeholder:"M" help:"Columns of the product (N)."`
	D         []flags.Count `name:"d" short:"d" default:"64,256,1024" placeholder:"D" help:"Terms of an element's sum (${default})."`
	Transpose []string      `enum:"nn,nt,tn,tt" default:"nn" placeholder:"OP" help:"Transposed operands: ${enum}."`
	Precision []string      `enum:"f32,bf16,int8" default:"f32" placeholder:"BITS" help:"Operands: f32, or rows and the weights of a layer in bf16 or int8 (${default})."`
	benchFlags
}

// Help returns the long help text with the columns and examples.
func (c *benchGemm) Help() string {
	return c.columns("Useful operations are two for each multiply-add, 2NMD.") + flags.JoinExamples(
		"farfield bench gemm -n 1024 -d 1024",
		"farfield bench gemm --transpose nn,nt,tn --json",
		"farfield bench gemm --precision f32,bf16,int8",
	)
}

func (c *benchGemm) Run(e *env.Env) error {
	s := &sweep{title: "farfield bench gemm", axis: "rows"}
	var list []variant
	for _, p := range c.Precision {
		if p != nn.Float32.String() {
			list = append(list, variant{name: "gemm", form: p})
			continue
		}
		for _, op := range c.Transpose {
			list = append(list, variant{name: "gemm", form: op})
		}
	}
	err := s.addCases(e, grid{[]flags.Count{1}, c.D, c.N, list}, func(p point) (*bench.Case, error) {
		if precision, err := nn.ParsePrecision(p.form); err == nil {
			return bench.Gemm{N: p.n, M: or(c.M, p.n), D: p.d, Precision: precision}.Case(), nil
		}
		return bench.Gemm{N: p.n, M: or(c.M, p.n), D: p.d, TransA: p.form[0] == 't', TransB: p.form[1] == 't'}.Case(), nil
	})
	if err != nil {
		return err
	}
	return c.measure(e, s)
}

// benchTrain is the suite train.
type benchTrain struct {
	variants
	N      []flags.Count `name:"n" short:"n" default:"1024" placeholder:"N" help:"Tokens of a sequence (${default})."`
	D      []flags.Count `name:"d" short:"d" default:"32" placeholder:"D" help:"Width of a head (${default})."`
	Heads  []flags.Count `default:"8" placeholder:"H" help:"Heads of a layer (${default})."`
	Layers flags.Count   `default:"6" placeholder:"L" help:"Layers (${default})."`
	Batch  flags.Count   `default:"8" placeholder:"B" help:"Sequences of an update (${default})."`
	benchFlags
}

// Help returns the long help text with the columns and examples.
func (c *benchTrain) Help() string {
	return c.columns(attentionOperations+" An update also counts three times the products of its tokens with the weights.") + flags.JoinExamples(
		"farfield bench train -n 512 --layers 2 --batch 2",
	)
}

func (c *benchTrain) Run(e *env.Env) error {
	list, err := c.list("auto")
	if err != nil {
		return err
	}
	s := &sweep{title: "farfield bench train: an update", axis: "tokens of a sequence"}
	err = s.addCases(e, grid{c.Heads, c.D, c.N, list}, func(p point) (*bench.Case, error) {
		return bench.Training{
			Mechanism: p.name, Order: p.order, Set: p.set,
			Layers: int(c.Layers), Heads: p.heads, D: p.d, Context: p.n, Batch: int(c.Batch),
		}.Case()
	})
	if err != nil {
		return err
	}
	return c.measure(e, s)
}

// sweep holds the cases of a suite.
type sweep struct {
	title string
	axis  string // unit of Case.X
	cases []*bench.Case
	lack  error // why none of the requested cases exist, if none do
}

// grid holds the values of a sweep.
type grid struct {
	heads, d, n []flags.Count
	list        []variant
}

// point is one of a grid.
type point struct {
	variant
	heads, d, n int
}

// options returns the mechanism's options for the heads of p.
func (p *point) options() mechanism.Options {
	return mechanism.Options{Order: p.order, Heads: p.heads, Width: p.d, Set: p.set}
}

// addCases adds a case for each point of g and each number of threads. It omits cases
// that a mechanism does not support.
func (s *sweep) addCases(e *env.Env, g grid, add func(point) (*bench.Case, error)) error {
	var lack *bench.LackError
	for _, threads := range e.Threads {
		par.SetThreads(threads)
		for _, h := range ascending(g.heads) {
			for _, d := range ascending(g.d) {
				for _, v := range g.list {
					for _, n := range ascending(g.n) {
						c, err := add(point{v, h, d, n})
						switch {
						case errors.As(err, &lack):
							s.lack = lack
						case err != nil:
							return env.MarkInput(err)
						default:
							s.cases = append(s.cases, c)
						}
					}
				}
			}
		}
	}
	return nil
}

// variants are the flags that choose among mechanisms.
type variants struct {
	Mechanism []string          `complete:"mechanisms" default:"fastmax,softmax" placeholder:"NAME" help:"Attention functions (${default})."`
	Order     []int             `placeholder:"P" help:"Degrees of the kernel polynomial, where there is one."`
	Set       map[string]string `complete:"settings" mapsep:"none" placeholder:"KEY=VALUE" help:"A setting, for mechanisms that have it; may be repeated."`
}

// variant is one mechanism with its order, settings and form.
type variant struct {
	name  string
	order int // 0: the mechanism's default
	set   map[string]string
	form  string
}

// list returns every combination with the forms. A setting that no mechanism knows is
// passed to all of them, which refuse it.
func (c *variants) list(forms ...string) ([]variant, error) {
	var rows []mechanism.Row
	for _, name := range c.Mechanism {
		row, err := flags.LookupFunction(name)
		if err != nil {
			return nil, env.MarkInput(err)
		}
		rows = append(rows, row)
	}
	// goes reports whether a setting of some rows applies to this row.
	goes := func(has func(mechanism.Row) bool, row mechanism.Row) bool {
		return has(row) || !slices.ContainsFunc(rows, has)
	}
	var list []variant
	for _, row := range rows {
		set := map[string]string{}
		for key, value := range c.Set {
			has := func(r mechanism.Row) bool {
				return slices.ContainsFunc(r.Settings, func(s mechanism.Setting) bool { return s.Name == key })
			}
			if goes(has, row) {
				set[key] = value
			}
		}
		orders := []int{0}
		if len(c.Order) > 0 && goes(func(r mechanism.Row) bool { return r.HasOrder() }, row) {
			orders = c.Order
			for _, p := range orders {
				if err := flags.CheckOrder(row.Name, p); err != nil {
					return nil, err
				}
			}
		}
		for _, p := range orders {
			for _, form := range forms {
				list = append(list, variant{row.Name, p, set, form})
			}
		}
	}
	return list, nil
}

// forms are the forms by name.
var forms = map[string]attention.Form{
	"auto": attention.Auto, "direct": attention.Direct, "linear": attention.Linear, "step": attention.Step,
}

// ascending returns the values of a list, each once, from the smallest on.
func ascending(list []flags.Count) []int {
	var ints []int
	for _, x := range list {
		ints = append(ints, int(x))
	}
	slices.Sort(ints)
	return slices.Compact(ints)
}

// or is x if it is given, else y.
func or(x flags.Count, y int) int {
	if x == 0 {
		return y
	}
	return int(x)
}
