package states

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// Pass visits the numbers of a state. A state lists them once, in its method Visit, which calls
// a method of Pass for each of its arrays in the order of a snapshot. What happens to an array
// depends on the pass: it is written to a snapshot, read from one, copied from another state,
// measured or cleared.
type Pass struct {
	// Tokens and Decay describe the state that is read or copied: how many tokens it has
	// absorbed, and whether they have a decay.
	Tokens int64
	Decay  bool

	kind  passKind
	w     *snapshot.Writer // of a pass that writes
	r     *snapshot.Reader // of a pass that reads
	parts []any            // what a pass that lists has met, and a pass that copies has not
	bytes int64            // what a pass that measures has met
}

type passKind int

const (
	writing passKind = iota
	reading
	listing // the first half of a copy: it views the arrays of the original
	copying // the second half
	measuring
	clearing
)

// SetsState reports whether the pass replaces the content of the state. If so, Visit sets what
// is no array, such as the number of tokens, from Tokens, Decay and the numbers it has read.
func (p *Pass) SetsState() bool { return p.kind == reading || p.kind == copying }

// InMemory reports whether the pass is not over a snapshot. Then it is also over numbers that a
// snapshot leaves out because they can be computed from others or will not be read again. A pass that
// measures or clears takes arrays whole, beyond the numbers that are listed.
func (p *Pass) InMemory() bool { return p.kind > reading }

// Fail makes a pass that reads fail, unless it has failed before. Other passes do not fail.
func (p *Pass) Fail(format string, args ...any) {
	if p.kind == reading {
		p.r.Fail(format, args...)
	}
}

// HasFailed reports whether the snapshot that is read is damaged.
func (p *Pass) HasFailed() bool { return p.kind == reading && p.r.Err != nil }

// number is an element of an array.
type number interface {
	bool | int32 | int64 | uint64 | float32 | float64
}

// visit passes over n numbers of x from number at on. In a snapshot, missing zeros follow them.
func visit[T number](p *Pass, x []T, at, n, missing int, write func(*snapshot.Writer, []T), read func(*snapshot.Reader, []T)) {
	var z T
	size := int(unsafe.Sizeof(z))
	switch p.kind {
	case writing:
		write(p.w, x[at:][:n])
		p.w.Zeros(missing * size)
	case reading:
		read(p.r, x[at:][:n])
		p.r.Skip(missing * size)
	case listing:
		p.parts = append(p.parts, x[at:][:n])
	case copying:
		copy(x[at:][:n], p.parts[0].([]T))
		p.parts = p.parts[1:]
	case measuring:
		p.bytes += int64(cap(x) * size)
	case clearing:
		clear(x)
	}
}

// single passes over a number that is no array.
func single[T number](p *Pass, x T, list func(one []T)) T {
	if p.kind >= measuring {
		return x
	}
	one := []T{x}
	list(one)
	return one[0]
}

// Int passes over a number that is no array. It returns the number of a state that is read or
// copied, and otherwise n.
func (p *Pass) Int(n int) int {
	return int(single(p, int64(n), func(one []int64) { Counts(p, one) }))
}

// Flag is Int for a flag.
func (p *Pass) Flag(x bool) bool {
	return single(p, x, func(one []bool) { p.Flags(one, 0, 1, 0) })
}

// Float is Int for a float64.
func (p *Pass) Float(x float64) float64 {
	return single(p, x, func(one []float64) { p.Wide(one, 0, 1, 0) })
}

// Flags passes over n flags of x from flag at on, behind which missing flags are not present.
func (p *Pass) Flags(x []bool, at, n, missing int) {
	visit(p, x, at, n, missing, (*snapshot.Writer).Flags, (*snapshot.Reader).Flags)
}

// Counts passes over x, of which a snapshot has an int64 for each.
func Counts[T int64 | uint64](p *Pass, x []T) {
	visit(p, x, 0, len(x), 0, func(w *snapshot.Writer, x []T) {
		for _, n := range x {
			w.Int(int64(n))
		}
	}, func(r *snapshot.Reader, x []T) {
		for i := range x {
			x[i] = T(r.Int())
		}
	})
}

// TokenCounts is Counts for numbers of tokens. A pass that reads fails if one is negative or
// above Tokens.
func (p *Pass) TokenCounts(x []int64) {
	Counts(p, x)
	for _, n := range x {
		if n < 0 || n > p.Tokens {
			p.Fail("a count is %d, of %d tokens", n, p.Tokens)
		}
	}
}

// Elements passes over the elements of x.
func (p *Pass) Elements(x []tensor.Float) { p.elements(x, 0, len(x), 0) }

func (p *Pass) elements(x []tensor.Float, at, n, missing int) {
	visit(p, x, at, n, missing, snapshot.WriteElements[tensor.Float], snapshot.ReadElements[tensor.Float])
}

// Wide passes over n numbers of x from number at on, behind which missing numbers are not
// present.
func (p *Pass) Wide(x []float64, at, n, missing int) {
	visit(p, x, at, n, missing, snapshot.WriteElements[float64], snapshot.ReadElements[float64])
}

// Derived passes over n numbers of x from number at on if the pass is in memory.
func Derived[T number](p *Pass, x []T, at, n int) {
	if p.InMemory() {
		visit(p, x, at, n, 0, nil, nil)
	}
}

// Growing passes over all of x in a pass in memory. A pass that copies makes room in x.
func Growing[T number](p *Pass, x *[]T) {
	if p.kind == copying {
		*x = append((*x)[:0], p.parts[0].([]T)...)
		p.parts = p.parts[1:]
		return
	}
	Derived(p, *x, 0, len(*x))
}

// Shared counts x in a pass that measures. The state reads x but shares it with others.
func (p *Pass) Shared(x []tensor.Float) {
	if p.kind == measuring {
		p.Elements(x[:len(x):len(x)])
	}
}

// Buffers passes over the numbers of n tokens of each buffer, from token at on, behind which
// missing tokens are not present. It leaves out buffers that have no data for tokens.
func (p *Pass) Buffers(at, n, missing int, list ...Buffer) {
	for _, b := range list {
		switch {
		case b.Data == nil && n+missing > 0:
		case p.InMemory() || b.Count == b.Stride:
			p.elements(b.Data, at*b.Stride, n*b.Stride, missing*b.Count)
		default:
			for j := range n {
				p.elements(b.Data, (at+j)*b.Stride, b.Count, 0)
			}
			p.elements(nil, 0, 0, missing*b.Count)
		}
	}
}

// Interleaved is Buffers for tokens 0 ≤ j < n, of which a snapshot has the numbers of all
// buffers together.
func (p *Pass) Interleaved(n, missing int, list ...Buffer) {
	if p.InMemory() {
		p.Buffers(0, n, 0, list...)
		return
	}
	for j := range n {
		for _, b := range list {
			if row := b.Data[j*b.Stride:][:b.Count]; p.kind == writing {
				snapshot.WriteElements(p.w, row)
			} else {
				snapshot.ReadElements(p.r, row)
			}
		}
	}
	for _, b := range list {
		p.elements(nil, 0, 0, missing*b.Count)
	}
}

// Rows passes over the first n numbers of rows lo ≤ i < hi of x, stride apart. In a snapshot,
// missing zeros follow each row.
func (p *Pass) Rows(x []tensor.Float, stride, lo, hi, n, missing int) {
	if p.InMemory() {
		p.Elements(x)
		return
	}
	for i := lo; i < hi; i++ {
		p.elements(x, i*stride, n, missing)
	}
}

// Owner is a mechanism with states.
type Owner interface {
	Identity() Identity
	ParameterSum() snapshot.ParameterSum
}

// Visited is a state that lists its numbers.
type Visited interface {
	attention.State
	StateShape() *attention.Shape
	HasDecay() bool // whether it has absorbed a decay
	Owner() Owner
	// Visit calls a method of p for each array of the state, in the order of a snapshot. If p
	// sets the state, it has no tokens, and Visit makes room for the numbers first.
	Visit(p *Pass)
}

// AppendBinary appends a snapshot of s to b: the header, then the numbers that Visit lists. It
// returns an error if there are far more heads than bytes, which Restore would refuse.
func AppendBinary(b []byte, s Visited) ([]byte, error) {
	o := s.Owner()
	w := NewSnapshot(b, o.Identity(), o.ParameterSum(), s.StateShape(), s.Tokens(), s.HasDecay())
	s.Visit(&Pass{kind: writing, w: w})
	return w.End()
}

// Restore returns the state of owner in the snapshot data. newState returns a state without
// tokens, for the shape and the number of tokens in the header; it returns an error, before it
// allocates, if r has fewer bytes than such a state needs. Restore returns an error if data is
// damaged or of another owner.
func Restore(data []byte, owner Owner, newState func(s attention.Shape, tokens int64, r *snapshot.Reader) (Visited, error)) (attention.State, error) {
	shape, tokens, r, err := ReadSnapshot(data, owner.Identity(), owner.ParameterSum())
	if err != nil {
		return nil, err
	}
	s, err := newState(shape, tokens, r)
	if err != nil {
		if r.Err == nil { // the mechanism has no state of the shape
			err = fault.Mark(fault.ErrMismatch, err)
		}
		return nil, err
	}
	s.Visit(&Pass{Tokens: tokens, Decay: r.Decay, kind: reading, r: r})
	if err := r.End(); err != nil {
		return nil, err
	}
	return s, nil
}

// Copy copies the tokens of from to a state of the same shape without tokens, and returns it.
func Copy[S Visited](to, from S) S {
	CopyArrays(to.Visit, from.Visit, from.Tokens(), from.HasDecay())
	return to
}

// CopyArrays copies a part of a state, whose arrays are visited by from, to the part visited by
// to. tokens and decay describe the state.
func CopyArrays(to, from func(p *Pass), tokens int64, decay bool) {
	p := &Pass{Tokens: tokens, Decay: decay, kind: listing}
	from(p)
	p.kind = copying
	to(p)
}

// measures has the passes of Bytes, which sessions call after each step.
var measures = sync.Pool{New: func() any { return new(Pass) }}

// Bytes returns the memory of the arrays of s. It does not allocate.
func Bytes(s Visited) int64 {
	p := measures.Get().(*Pass)
	defer measures.Put(p)
	*p = Pass{kind: measuring}
	s.Visit(p)
	return p.bytes
}

// Clear sets the arrays of s to 0.
func Clear(s Visited) { s.Visit(&Pass{kind: clearing}) }

// Mergeable returns next as a state of the type of s. It returns an error if the types,
// identities or shapes of the states differ. Learned parameters are not compared.
func Mergeable[S interface {
	comparable
	Visited
}](s S, next attention.State) (S, error) {
	n, ok := next.(S)
	var none S
	if !ok || n == none {
		return none, fmt.Errorf("merge: kind of state is %T, needs %T: %w", next, none, attention.ErrNotMergeable)
	}
	return n, s.Owner().Identity().Fits("merge", s.StateShape(), n.Owner().Identity(), n.StateShape())
}

// Merge appends the tokens of next, which is not changed, to s. It calls add if both states
// have tokens. It returns the errors of Mergeable and add, and an error if the number of tokens
// overflows.
func Merge[S interface {
	comparable
	Visited
}](s S, next attention.State, add func(next S) error) error {
	n, err := Mergeable(s, next)
	before, tokens := s.Tokens(), int64(0)
	if err == nil {
		tokens = n.Tokens()
	}
	switch {
	case err != nil || tokens == 0:
		return err
	case before+tokens < before:
		return fmt.Errorf("merge: %d and %d tokens are more than can be counted", before, tokens)
	case before == 0:
		Copy(s, n)
		return nil
	}
	if n == s {
		n = s.Clone().(S)
	}
	return add(n)
}
