package comm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/fault"
)

// Transport moves bytes between the ranks of a job. Its methods are called by one goroutine at
// a time, and return when the buffers may be used again. If a buffer has a part for each rank,
// the parts are consecutive, in the order of ranks.
type Transport interface {
	Rank() int
	Size() int
	// Exchange sends the next toEach[r] bytes of send to each rank r, and receives the next
	// fromEach[r] bytes of recv from it.
	Exchange(send []byte, toEach []int, recv []byte, fromEach []int) error
	// Gather sets all to the bytes own of all ranks, one after another. lengths[r] is the
	// length of own on rank r.
	Gather(all []byte, lengths []int, own []byte) error
	// Broadcast sets b, of the same length on every rank, to rank root's b.
	Broadcast(b []byte, root int) error
	Barrier() error
	// Abort ends the job for all ranks: their operations return an error, or their
	// processes end.
	Abort(reason error)
	// Close ends this rank's part in the job, once all other ranks close theirs.
	Close() error
}

// ErrNoAnswer is in the errors of a transport whose wait for other ranks timed out. After it,
// the buffers of the operation must not be used any more.
var ErrNoAnswer = errors.New("no answer")

// Element constrains the elements of arrays in all operations except sums.
type Element interface{ byte | float32 | float64 }

// Number constrains the elements of sums.
type Number interface{ float32 | float64 }

// Comm is one rank's connection to the other ranks of a job. Only one goroutine may use it at a
// time. A nil *Comm is a job of one process, rank 0 of 1. It supports ShareError,
// CheckAgreement, CallOnRankZero, AllGather, Broadcast, AllReduce and Tree.SumRanks.
type Comm struct {
	transport Transport
	sent      int64 // bytes to other ranks

	// Reused memory.
	parts   []float64
	lengths [2][]int
	total   []float64
}

// New returns the Comm of the rank whose transport is t.
func New(t Transport) *Comm { return &Comm{transport: t} }

// Rank returns the number of this rank, counted from 0.
func (c *Comm) Rank() int {
	if c == nil {
		return 0
	}
	return c.transport.Rank()
}

// Size returns the number of ranks.
func (c *Comm) Size() int {
	if c == nil {
		return 1
	}
	return c.transport.Size()
}

// SentBytes returns the number of bytes that this rank sent to others.
func (c *Comm) SentBytes() int64 { return c.sent }

// exchangeParts calls the transport's Exchange and counts its bytes.
func (c *Comm) exchangeParts(name string, send []byte, toEach []int, recv []byte, fromEach []int) error {
	c.sent += int64(len(send) - toEach[c.Rank()])
	return c.wrapError(name, c.transport.Exchange(send, toEach, recv, fromEach))
}

// gatherParts calls the transport's Gather and counts its bytes.
func (c *Comm) gatherParts(name string, all []byte, lengths []int, own []byte) error {
	c.sent += int64(c.Size()-1) * int64(len(own))
	return c.wrapError(name, c.transport.Gather(all, lengths, own))
}

// wrapError adds the rank and the operation to an error; nil stays nil.
func (c *Comm) wrapError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rank %d of %d: %s: %w", c.Rank(), c.Size(), name, err)
}

// Barrier waits for all ranks. It returns an error of the transport.
func (c *Comm) Barrier() error {
	return c.wrapError("barrier", c.transport.Barrier())
}

// Abort ends the job for all ranks.
func (c *Comm) Abort(reason error) { c.transport.Abort(reason) }

// Close ends this rank's part in the job, once all other ranks close theirs. It returns an
// error of the transport.
func (c *Comm) Close() error { return c.wrapError("close", c.transport.Close()) }

// AllGather returns the own [n] of every rank, in the order of ranks. Lengths may differ. It
// returns an error of the transport, and an error for more than 2^30 bytes.
func AllGather[E Element](c *Comm, own []E) ([][]E, error) {
	if c == nil {
		return [][]E{own}, nil
	}
	const name = "all-gather"
	size := c.Size()
	mine, lengths := []int64{int64(len(own))}, make([]int64, size)
	even := c.equalLengths(0, int(unsafe.Sizeof(mine[0])))
	if err := c.gatherParts(name, bytesOf(lengths), even, bytesOf(mine)); err != nil {
		return nil, err
	}
	list, each := make([][]E, size), c.lengths[0][:size]
	sum := 0
	for r, n := range lengths {
		if n < 0 || n > maxBytes {
			return nil, c.wrapError(name, fmt.Errorf("rank %d has %d elements, at most %d can be gathered", r, n, maxBytes))
		}
		sum += int(n)
		each[r] = int(n) * sizeOf[E]()
	}
	if sum*sizeOf[E]() > maxBytes {
		return nil, c.wrapError(name, fmt.Errorf("%d elements of all ranks have more than %d bytes", sum, maxBytes))
	}
	all := make([]E, sum)
	if err := c.gatherParts(name, bytesOf(all), each, bytesOf(own)); err != nil {
		return nil, err
	}
	for r, n := range lengths {
		list[r], all = all[:n:n], all[n:]
	}
	return list, nil
}

// Broadcast sets x [n] on every rank to the x of rank root. The length must be the same on all
// ranks. It returns an error of the transport, and an error if there is no rank root.
func Broadcast[E Element](c *Comm, x []E, root int) error {
	if c == nil {
		return nil
	}
	const name = "broadcast"
	if root < 0 || root >= c.Size() {
		return c.wrapError(name, fmt.Errorf("root is %d, there are %d ranks", root, c.Size()))
	}
	for b := bytesOf(x); len(b) > 0; {
		n := min(len(b), maxBytes)
		if err := c.transport.Broadcast(b[:n], root); err != nil {
			return c.wrapError(name, err)
		}
		b = b[n:]
	}
	if root == c.Rank() {
		c.sent += int64(c.Size()-1) * int64(len(x)*sizeOf[E]())
	}
	return nil
}

// Pass sends x from rank from to rank to. It returns x on rank to, and nil on all other ranks.
// All ranks must call it with the same from and to, which must differ. It returns an error of
// the transport, and an error if one of the ranks does not exist.
func Pass[E Element](c *Comm, x []E, from, to int) ([]E, error) {
	const name = "pass"
	if size := c.Size(); from == to || min(from, to) < 0 || max(from, to) >= size {
		return nil, c.wrapError(name, fmt.Errorf("from rank %d to %d, there are %d ranks", from, to, size))
	}
	length := []int64{int64(len(x))}
	if err := c.transport.Broadcast(bytesOf(length), from); err != nil {
		return nil, c.wrapError(name, err)
	}
	var got []E
	if c.Rank() == to {
		got = make([]E, length[0])
	}
	for left := int(length[0]); left > 0; {
		n := min(left, pieceBytes/sizeOf[E]())
		send, recv := c.equalLengths(0, 0), c.equalLengths(1, 0)
		var own, other []byte
		if c.Rank() == from {
			own = bytesOf(x[len(x)-left:][:n])
			send[to] = len(own)
		}
		if c.Rank() == to {
			other = bytesOf(got[len(got)-left:][:n])
			recv[from] = len(other)
		}
		if err := c.exchangeParts(name, own, send, other, recv); err != nil {
			return nil, err
		}
		left -= n
	}
	return got, nil
}

// ShareError returns an error on every rank if err is not nil on one of them: a *RankError of
// the lowest such rank. Without it, the other ranks would wait for the failed rank for ever.
func ShareError(c *Comm, err error) error {
	if c == nil {
		return err
	}
	var text []byte
	if err != nil {
		inGo, inFile := fault.Texts(err)
		text = formatFields(Field{inGo, inFile}) // some bytes, even of an error without text
	}
	all, failed := AllGather(c, text)
	if failed != nil {
		return failed
	}
	for r, text := range all {
		switch {
		case r == c.Rank() && err != nil:
			return &RankError{r, err}
		case len(text) > 0:
			texts := parseFields(text)[0]
			return &RankError{r, fault.OfTexts(texts.Name, texts.Value)}
		}
	}
	return nil
}

// CallOnRankZero calls f on rank 0 and returns its result on every rank. The result is sent as
// JSON. It returns f's error, as a *RankError, or an error of the transport.
func CallOnRankZero[V any](c *Comm, f func() (V, error)) (v V, err error) {
	var text []byte
	if c.Rank() == 0 {
		if v, err = f(); err == nil {
			text, err = json.Marshal(v)
		}
	}
	if err = ShareError(c, err); err != nil {
		return v, err
	}
	all, err := AllGather(c, text)
	if err == nil && c.Rank() > 0 {
		err = json.Unmarshal(all[0], &v)
	}
	return v, err
}

// RankError is an error of one rank that every rank returns.
type RankError struct {
	Rank int
	Err  error
}

// Error names the rank before its error.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the error Err.
func (e *RankError) Unwrap() error { return e.Err }

// Field is a named value that must be equal on all ranks.
type Field struct{ Name, Value string }

// CheckAgreement returns an error on every rank if a field differs between some rank and rank
// 0. The error names the first such field and both values.
func CheckAgreement(c *Comm, fields ...Field) error {
	if c == nil {
		return nil
	}
	all, err := AllGather(c, formatFields(fields...))
	if err != nil {
		return err
	}
	for r, other := range all {
		if string(other) == string(all[0]) {
			continue
		}
		first, list := parseFields(all[0]), parseFields(other)
		for i := range min(len(first), len(list)) {
			if a, b := first[i], list[i]; a != b {
				return &RankError{r, fmt.Errorf("%s: is %q, rank 0 has %s %q", b.Name, b.Value, a.Name, a.Value)}
			}
		}
		return &RankError{r, fmt.Errorf("has %d fields to agree on, rank 0 has %d", len(list), len(first))}
	}
	return nil
}

// formatFields returns the names and values of fields, each after its length.
func formatFields(fields ...Field) (b []byte) {
	for _, f := range fields {
		for _, text := range []string{f.Name, f.Value} {
			b = fmt.Appendf(b, "%d:%s", len(text), text)
		}
	}
	return b
}

// parseFields returns the fields that formatFields wrote on another rank.
func parseFields(b []byte) (list []Field) {
	next := func() string {
		var n, at int
		for at < len(b) && b[at] != ':' {
			n = n*10 + int(b[at]-'0')
			at++
		}
		at = min(at+1, len(b))
		end := min(at+max(n, 0), len(b))
		text := string(b[at:end])
		b = b[end:]
		return text
	}
	for len(b) > 0 {
		list = append(list, Field{next(), next()})
	}
	return list
}

// maxBytes bounds the bytes of a transport's operation: MPI counts in 32 bits.
const maxBytes = 1 << 30

// equalLengths returns lengths of n bytes for each rank, in memory i.
func (c *Comm) equalLengths(i, n int) []int {
	c.lengths[i] = slices.Grow(c.lengths[i][:0], c.Size())[:c.Size()]
	for r := range c.lengths[i] {
		c.lengths[i][r] = n
	}
	return c.lengths[i]
}

func sizeOf[E any]() int {
	var x E
	return int(unsafe.Sizeof(x))
}

// bytesOf returns the memory of x. CheckAgreement refuses ranks with another byte order.
func bytesOf[E byte | int64 | float32 | float64](x []E) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*sizeOf[E]())
}

// floatsOf returns bytes, which come from an array of T, as T.
func floatsOf[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}
