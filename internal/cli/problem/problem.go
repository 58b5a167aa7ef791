// Package problem reads the arrays of a call of attention from .npz and .safetensors files.
package problem

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Request names a mechanism, and the arrays of a file on which it is called.
type Request struct {
	Mechanism string
	flags.Settings
	Causal         bool
	Form           string // auto, direct, linear or step
	Path           string // of the file, for errors
	AllowNonfinite bool
	Grad           bool // the gradient of the output is read, too
	Dropout        string
	Rate           *float64 // nil: the array rate says it
	Seed           uint64   // of masks that are drawn
}

// Problem is a call with its mechanism, read from a file of arrays.
type Problem struct {
	rank         int // dimensions of q: 2, 3 or 4
	Call         attention.Call
	DOut         tensor.Heads
	Mechanism    attention.Mechanism
	Shapes       map[string][]int // of the mechanism's parameters, as they were given
	furtherNames []string         // further arrays that were read
	DecayShape   []int            // shape of log_g; nil: none
}

// CallNames lists the arrays of a call besides q, k and v: masks, lengths, offsets and log-decays.
var CallNames = []string{"keymask", "key_lengths", "attn_keep", "cu_q", "cu_k", "log_g"}

// arrayNames are the arrays that attend knows besides the parameters.
var arrayNames = append([]string{"q", "k", "v", "do", "go"}, CallNames...)

// ArrayNames returns the names of the arrays of a call.
func ArrayNames() []string { return slices.Clone(arrayNames) }

// UnknownNames returns those of names that are neither arrays of a call nor parameters of its
// mechanism.
func (p *Problem) UnknownNames(names []string) []string {
	var list []string
	for _, n := range names {
		if _, parameter := p.Shapes[n]; !parameter && !slices.Contains(arrayNames, n) && !slices.Contains(p.furtherNames, n) {
			list = append(list, n)
		}
	}
	return list
}

// ReadProblem reads the arrays of a call from src. It checks all names, types and shapes before it
// reads elements, because a compressed array may be a thousand times as large as its file. It
// returns an error if an array is missing or does not fit.
func ReadProblem(c *Request, src array.Source) (*Problem, error) {
	p := &Problem{Shapes: map[string][]int{}}
	p.Call.Causal = c.Causal
	for _, f := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
		if f.String() == c.Form {
			p.Call.Form = f
		}
	}
	for _, headers := range []bool{true, false} {
		if err := p.read(c, &arrayReader{src, c.Path, c.AllowNonfinite, headers}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// NewStreamProblem returns the problem of a stream with the given number of heads of width d and at
// most tokens keys: the mechanism, with its parameters from src. It returns an error if a setting
// or a parameter does not fit.
func NewStreamProblem(c *Request, heads, d, tokens int, src array.Source) (*Problem, error) {
	p := &Problem{Shapes: map[string][]int{}}
	p.Call.Q.H, p.Call.Q.D, p.Call.K.N = heads, d, tokens
	return p, p.readMechanism(c, &arrayReader{src, c.Path, c.AllowNonfinite, false})
}

// read reads all arrays, or their headers alone.
func (p *Problem) read(c *Request, r *arrayReader) error {
	if err := p.readHeads(r); err != nil {
		return err
	}
	if err := p.readMasks(r); err != nil {
		return err
	}
	if err := p.readDropout(c, r); err != nil {
		return err
	}
	if c.Grad {
		if err := p.readGradient(r); err != nil {
			return err
		}
	}
	return p.readMechanism(c, r)
}

func (p *Problem) readHeads(r *arrayReader) error {
	for _, x := range []struct {
		name string
		to   *tensor.Heads
	}{{"q", &p.Call.Q}, {"k", &p.Call.K}, {"v", &p.Call.V}} {
		var rank int
		var err error
		if *x.to, rank, err = r.heads(x.name); err != nil {
			return err
		}
		if p.rank == 0 {
			p.rank = rank
		}
		if rank != p.rank {
			return fmt.Errorf("%s: has %d dimensions, q has %d", x.name, rank, p.rank)
		}
		if x.to.D == 0 {
			return fmt.Errorf("%s: the last dimension is 0, needs 1 or more", x.name)
		}
	}
	q, k, v := &p.Call.Q, &p.Call.K, &p.Call.V
	switch {
	case k.B != q.B:
		return fmt.Errorf("k: B is %d, q has %d", k.B, q.B)
	case k.D != q.D:
		return fmt.Errorf("k: D is %d, q has %d", k.D, q.D)
	case k.H == 0 && q.H != 0, k.H != 0 && q.H%k.H != 0:
		return fmt.Errorf("k: H is %d, which does not divide the %d of q", k.H, q.H)
	case v.B != k.B:
		return fmt.Errorf("v: B is %d, k has %d", v.B, k.B)
	case v.H != k.H:
		return fmt.Errorf("v: H is %d, k has %d", v.H, k.H)
	case v.N != k.N:
		return fmt.Errorf("v: M is %d, k has %d", v.N, k.N)
	}
	return nil
}

func (p *Problem) readMasks(r *arrayReader) (err error) {
	c := &p.Call
	if r.has("keymask") {
		if c.KeyMask, err = r.mask("keymask", true, "(B,M) or (M)", c.K.B, c.K.N); err != nil {
			return err
		}
	}
	if r.has("attn_keep") {
		if c.AttnKeep, err = r.mask("attn_keep", false, "(N,M)", c.Q.N, c.K.N); err != nil {
			return err
		}
	}
	if r.has("key_lengths") {
		var shape []int
		var n int
		if c.KeyLens, shape, n, err = r.integers("key_lengths"); err != nil {
			return err
		}
		if len(shape) == 0 { // one length for all rows
			c.KeyLens, n = slices.Repeat(c.KeyLens, c.K.B), c.K.B
		}
		if n != c.K.B {
			return fmt.Errorf("key_lengths: has %d elements, B is %d", n, c.K.B)
		}
		for b, n := range c.KeyLens {
			if n < 0 || n > int64(c.K.N) {
				return fmt.Errorf("key_lengths: row %d is %d, M is %d", b, n, c.K.N)
			}
		}
	}
	offsets := map[string]int{}
	for _, x := range []struct {
		name, other string
		to          *[]int64
		tokens      int
	}{{"cu_q", "cu_k", &c.CuQ, c.Q.N}, {"cu_k", "cu_q", &c.CuK, c.K.N}} {
		if !r.has(x.name) {
			continue
		}
		if !r.has(x.other) {
			return fmt.Errorf("%s: missing; %s needs it", x.other, x.name)
		}
		if *x.to, _, offsets[x.name], err = r.integers(x.name); err != nil {
			return err
		}
		if r.headers {
			continue
		}
		if err := checkOffsets(x.name, *x.to, x.tokens); err != nil {
			return err
		}
	}
	if q, k := offsets["cu_q"], offsets["cu_k"]; q != k {
		return fmt.Errorf("cu_k: has %d offsets, cu_q has %d", k, q)
	}
	return p.readDecay(r)
}

// readDecay reads the decay of each token: of each key head, or one for all, or
// one for all batch rows too.
func (p *Problem) readDecay(r *arrayReader) error {
	if !r.has("log_g") {
		return nil
	}
	x, shape, err := r.data("log_g")
	if err != nil {
		return err
	}
	k := &p.Call.K
	want := []int{k.B, k.H, k.N}
	if len(shape) < 1 || len(shape) > 3 || !slices.Equal(shape, want[3-len(shape):]) {
		return fmt.Errorf("log_g: shape is %v, needs (B,H,M), (H,M) or (M) of k = %v", shape, want)
	}
	p.DecayShape = shape
	all := k.B * k.H * k.N
	if len(x) > 0 {
		x = slices.Repeat(x, all/len(x))
	}
	p.Call.LogG = tensor.HeadsOf(x, k.B, k.H, k.N, 1)
	return nil
}

// SumDecayGradient returns the gradient [DecayShape...] of the log-decay: the sums of
// all [B,Hkv,N] over the batch rows and heads that share it.

// SumDecayGradient adds up the gradients of log-decays, all [B,Hkv,N], over the batch rows and
// heads that share one log-decay.
func (p *Problem) SumDecayGradient(all []float32) []float32 {
	n := 1
	for _, d := range p.DecayShape {
		n *= d
	}
	sums := make([]float64, n)
	for i, x := range all {
		sums[i%n] += float64(x)
	}
	g := make([]float32, n)
	for i, x := range sums {
		g[i] = float32(x)
	}
	return g
}

// checkOffsets reports offsets that do not cut the tokens into sequences.
func checkOffsets(name string, cu []int64, tokens int) error {
	if len(cu) == 0 {
		return fmt.Errorf("%s: has 0 offsets, needs 1 or more", name)
	}
	if cu[0] != 0 {
		return fmt.Errorf("%s: offset 0 is %d, needs 0", name, cu[0])
	}
	for i, at := range cu[1:] {
		if at < cu[i] {
			return fmt.Errorf("%s: offset %d is %d, after %d", name, i+1, at, cu[i])
		}
	}
	if last := cu[len(cu)-1]; last != int64(tokens) {
		return fmt.Errorf("%s: the last offset is %d, there are %d tokens", name, last, tokens)
	}
	return nil
}

// readGradient reads the gradient of the output, by either of its names.
func (p *Problem) readGradient(r *arrayReader) error {
	name := "do"
	if r.has("go") {
		if r.has("do") {
			return fmt.Errorf("go: given beside do, which means the same")
		}
		name = "go"
	}
	x, rank, err := r.heads(name)
	if err != nil {
		return err
	}
	if rank != p.rank {
		return fmt.Errorf("%s: has %d dimensions, the output has %d", name, rank, p.rank)
	}
	q, v := &p.Call.Q, &p.Call.V
	for _, d := range []struct {
		name      string
		got, want int
	}{{"B", x.B, q.B}, {"H", x.H, q.H}, {"N", x.N, q.N}, {"Dv", x.D, v.D}} {
		if d.got != d.want {
			return fmt.Errorf("%s: %s is %d, the output has %d", name, d.name, d.got, d.want)
		}
	}
	p.DOut = x
	return nil
}

// readMechanism makes the mechanism and reads its parameters and constants from the
// file. Their shapes set options that the flags do not.
func (p *Problem) readMechanism(c *Request, r *arrayReader) error {
	row, err := mechanism.Lookup(c.Mechanism)
	if err != nil {
		return err
	}
	given := map[string][]float32{}
	for _, x := range slices.Concat(row.Params, row.Constants) {
		if !r.has(x.Name) {
			continue
		}
		if given[x.Name], p.Shapes[x.Name], err = r.data(x.Name); err != nil {
			return err
		}
	}
	o, err := c.Options(c.Mechanism, p.Call.Q.H, p.Call.Q.D, p.Call.K.N)
	if err != nil {
		return err
	}
	o.KeyHeads = p.Call.K.H
	if p.Mechanism == nil { // the headers made it otherwise
		if p.Mechanism, err = mechanism.New(c.Mechanism, row.FitOptions(o, p.Shapes)); err != nil {
			return err
		}
	}
	for _, x := range slices.Concat(p.Mechanism.Params().All(), p.Mechanism.Constants().All()) {
		data, ok := given[x.Name]
		n, _ := array.CountElements(p.Shapes[x.Name])
		switch {
		case !ok:
			p.Shapes[x.Name] = x.Shape
		case n != len(x.Data) || n > 1 && !slices.Equal(longDimensions(p.Shapes[x.Name]), longDimensions(x.Shape)):
			return fmt.Errorf("%s: shape is %v, needs %v", x.Name, p.Shapes[x.Name], x.Shape)
		default:
			copy(x.Data, data)
		}
		delete(given, x.Name)
	}
	for name := range given { // with these settings it means nothing
		delete(p.Shapes, name)
	}
	return nil
}

// longDimensions returns the dimensions that are not 1.
func longDimensions(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(n int) bool { return n == 1 })
}

// NewArray is an output array with as many dimensions as the input has.
func (p *Problem) NewArray(name string, x tensor.Heads) *array.Array {
	shape := []int{x.B, x.H, x.N, x.D}
	return NewArray(name, x.Data, shape[len(shape)-p.rank:])
}
