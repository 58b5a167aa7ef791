package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// attendProblem is what a file of arrays asks for.
type attendProblem[T tensor.Float] struct {
	rank   int // dimensions of q: 2, 3 or 4
	call   attention.Call[T]
	dout   tensor.Heads[T]
	mech   attention.Mechanism[T]
	shapes map[string][]int // of the mechanism's parameters, as they were given
	used   []string         // further arrays that were read
	decay  []int            // shape of log_g; nil: none
}

// arrayNames are the arrays that attend knows besides the parameters.
var arrayNames = []string{"q", "k", "v", "do", "go", "keymask", "key_lengths", "attn_keep", "cu_q", "cu_k", "log_g"}

// unknown returns those of names that mean nothing.
func (p *attendProblem[T]) unknown(names []string) []string {
	var list []string
	for _, n := range names {
		if _, parameter := p.shapes[n]; !parameter && !slices.Contains(arrayNames, n) && !slices.Contains(p.used, n) {
			list = append(list, n)
		}
	}
	return list
}

// arrayReader reads named arrays of one file as T.
type arrayReader[T tensor.Float] struct {
	array.Source
	path      string
	nonfinite bool // NaN and Inf are accepted
	headers   bool // shapes alone are read, and no data
}

func (r *arrayReader[T]) has(name string) bool { return slices.Contains(r.Names(), name) }

// Types of arrays, with what is said where another is given.
var (
	floats   = []array.DType{array.F4, array.F8, array.F2, array.BF16}
	integers = []array.DType{array.I4, array.I8, array.U1}
	bools    = []array.DType{array.U1, array.Bool}
)

// shape returns the shape of an array, whose type has to be one of a list.
func (r *arrayReader[T]) shape(name string, types []array.DType, needed string) ([]int, error) {
	t, shape, err := r.ReadHeader(name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(types, t) {
		return nil, fmt.Errorf("%s: dtype is %v; %s is needed", name, t, needed)
	}
	if _, err := array.CountElements(shape); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return shape, nil
}

// data reads an array of numbers. They are nil where headers alone are read.
func (r *arrayReader[T]) data(name string) ([]T, []int, error) {
	if !r.has(name) {
		return nil, nil, fmt.Errorf("%s: missing; %s has %s", name, r.path, strings.Join(r.Names(), ", "))
	}
	if r.headers {
		shape, err := r.shape(name, floats, "f4 or f8")
		return nil, shape, err
	}
	a, err := r.ReadArray(name)
	if err != nil {
		return nil, nil, err
	}
	var x []T
	switch x := any(&x).(type) {
	case *[]float32:
		*x, err = a.Float32()
	case *[]float64:
		*x, err = a.Float64()
	}
	if err != nil {
		return nil, nil, err
	}
	if !r.nonfinite {
		for i, v := range x {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return nil, nil, fmt.Errorf("%s: element %s is %v (--allow-nonfinite accepts it)", name, position(i, a.Shape), v)
			}
		}
	}
	return x, a.Shape, nil
}

// position writes the place of element i in an array of that shape.
func position(i int, shape []int) string {
	at := make([]string, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = fmt.Sprint(i % shape[d])
		i /= shape[d]
	}
	return "[" + strings.Join(at, ",") + "]"
}

// heads reads an array of rank 2 to 4 as heads.
func (r *arrayReader[T]) heads(name string) (tensor.Heads[T], int, error) {
	x, shape, err := r.data(name)
	if err != nil {
		return tensor.Heads[T]{}, 0, err
	}
	if len(shape) < 2 || len(shape) > 4 {
		return tensor.Heads[T]{}, 0, fmt.Errorf("%s: has %d dimensions, needs (N,D), (H,N,D) or (B,H,N,D)", name, len(shape))
	}
	s := [4]int{1, 1, 1, 1}
	copy(s[4-len(shape):], shape)
	return tensor.HeadsOf(x, s[0], s[1], s[2], s[3]), len(shape), nil
}

// mask reads an array that holds one yes or no for each element of a shape,
// or, where rows is set, of the last dimension of it, repeated.
func (r *arrayReader[T]) mask(name string, rows bool, dims string, b, n int) ([]bool, error) {
	shape, err := r.shape(name, bools, "u1 or bool")
	if err != nil {
		return nil, err
	}
	one := rows && slices.Equal(shape, []int{n})
	if !one && !slices.Equal(shape, []int{b, n}) {
		return nil, fmt.Errorf("%s: shape is %v, needs %s = [%d %d]", name, shape, dims, b, n)
	}
	m, err := r.flags(name)
	if one {
		m = slices.Repeat(m, b)
	}
	return m, err
}

// flags reads an array of yes and no; nil where headers alone are read.
func (r *arrayReader[T]) flags(name string) ([]bool, error) {
	if r.headers {
		return nil, nil
	}
	a, err := r.ReadArray(name)
	if err != nil {
		return nil, err
	}
	return a.Bool()
}

// integers reads n lengths or offsets. They are nil where headers alone are read.
func (r *arrayReader[T]) integers(name string) (x []int64, shape []int, n int, err error) {
	if shape, err = r.shape(name, integers, "i4, i8 or u1"); err != nil {
		return nil, nil, 0, err
	}
	if len(shape) > 1 {
		return nil, nil, 0, fmt.Errorf("%s: has %d dimensions, needs 1", name, len(shape))
	}
	if n, err = array.CountElements(shape); err != nil || r.headers {
		return nil, shape, n, err
	}
	a, err := r.ReadArray(name)
	if err != nil {
		return nil, nil, 0, err
	}
	x, err = a.Int64()
	return x, shape, n, err
}

// readProblem reads all that the command needs of src, and checks it. Names, types and
// shapes come first, for all arrays, since a deflated array may have a thousand
// times the bytes of its file.
func readProblem[T tensor.Float](c *attendCmd, src array.Source) (*attendProblem[T], error) {
	p := &attendProblem[T]{shapes: map[string][]int{}}
	p.call.Causal = c.Causal
	for _, f := range []attention.Form{attention.Direct, attention.Linear, attention.Step} {
		if f.String() == c.Form {
			p.call.Form = f
		}
	}
	for _, headers := range []bool{true, false} {
		if err := p.read(c, &arrayReader[T]{src, c.In, c.AllowNonfinite, headers}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// read reads all arrays, or their headers alone.
func (p *attendProblem[T]) read(c *attendCmd, r *arrayReader[T]) error {
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

func (p *attendProblem[T]) readHeads(r *arrayReader[T]) error {
	for _, x := range []struct {
		name string
		to   *tensor.Heads[T]
	}{{"q", &p.call.Q}, {"k", &p.call.K}, {"v", &p.call.V}} {
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
	q, k, v := &p.call.Q, &p.call.K, &p.call.V
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

func (p *attendProblem[T]) readMasks(r *arrayReader[T]) (err error) {
	c := &p.call
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
func (p *attendProblem[T]) readDecay(r *arrayReader[T]) error {
	if !r.has("log_g") {
		return nil
	}
	x, shape, err := r.data("log_g")
	if err != nil {
		return err
	}
	k := &p.call.K
	want := []int{k.B, k.H, k.N}
	if len(shape) < 1 || len(shape) > 3 || !slices.Equal(shape, want[3-len(shape):]) {
		return fmt.Errorf("log_g: shape is %v, needs (B,H,M), (H,M) or (M) of k = %v", shape, want)
	}
	p.decay = shape
	all := k.B * k.H * k.N
	if len(x) > 0 {
		x = slices.Repeat(x, all/len(x))
	}
	p.call.LogG = tensor.HeadsOf(x, k.B, k.H, k.N, 1)
	return nil
}

// decayGrad adds up the gradients of one decay that many rows or heads share.
func (p *attendProblem[T]) decayGrad(all []T) []T {
	n := 1
	for _, d := range p.decay {
		n *= d
	}
	sums := make([]float64, n)
	for i, x := range all {
		sums[i%n] += float64(x)
	}
	g := make([]T, n)
	for i, x := range sums {
		g[i] = T(x)
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
func (p *attendProblem[T]) readGradient(r *arrayReader[T]) error {
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
	q, v := &p.call.Q, &p.call.V
	for _, d := range []struct {
		name      string
		got, want int
	}{{"B", x.B, q.B}, {"H", x.H, q.H}, {"N", x.N, q.N}, {"Dv", x.D, v.D}} {
		if d.got != d.want {
			return fmt.Errorf("%s: %s is %d, the output has %d", name, d.name, d.got, d.want)
		}
	}
	p.dout = x
	return nil
}

// readMechanism makes the mechanism and sets its parameters and constants to what
// the file holds of them, which also says what the flags do not.
func (p *attendProblem[T]) readMechanism(c *attendCmd, r *arrayReader[T]) error {
	row, err := mechanism.Lookup(c.Mechanism)
	if err != nil {
		return err
	}
	given := map[string][]T{}
	for _, x := range slices.Concat(row.Params, row.Constants) {
		if !r.has(x.Name) {
			continue
		}
		if given[x.Name], p.shapes[x.Name], err = r.data(x.Name); err != nil {
			return err
		}
	}
	o, err := c.options(p.call.Q.H, p.call.Q.D, p.call.K.N)
	if err != nil {
		return err
	}
	if p.mech == nil { // the headers made it otherwise
		if p.mech, err = mechanism.New[T](c.Mechanism, row.FitOptions(o, p.shapes)); err != nil {
			return err
		}
	}
	for _, x := range slices.Concat(p.mech.Params().All(), p.mech.Constants().All()) {
		data, ok := given[x.Name]
		n, _ := array.CountElements(p.shapes[x.Name])
		switch {
		case !ok:
			p.shapes[x.Name] = x.Shape
		case n != len(x.Data) || n > 1 && !slices.Equal(long(p.shapes[x.Name]), long(x.Shape)):
			return fmt.Errorf("%s: shape is %v, needs %v", x.Name, p.shapes[x.Name], x.Shape)
		default:
			copy(x.Data, data)
		}
		delete(given, x.Name)
	}
	for name := range given { // with these settings it means nothing
		delete(p.shapes, name)
	}
	return nil
}

// long returns the dimensions that are not 1.
func long(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(n int) bool { return n == 1 })
}
