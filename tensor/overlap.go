package tensor

import (
	"unsafe"
)

// Overlaps reports whether an element of x is an element of y. Heads that interleave, such
// as queries and keys of one projection, do not overlap. Both views fit their data (Check).
// The time does not depend on the number of elements unless two views interleave in an
// irregular way.
func (x Heads) Overlaps(y Heads) bool {
	if x.isEmpty() || y.isEmpty() {
		return false
	}
	a, b := uintptr(unsafe.Pointer(&x.Data[0])), uintptr(unsafe.Pointer(&y.Data[0]))
	size := int(unsafe.Sizeof(x.Data[0]))
	if a+uintptr(x.reach()*size) <= b || b+uintptr(y.reach()*size) <= a {
		return false
	}
	runs, others := x.runs(size), y.runs(size)
	at := int(b - a)
	if runs.isApart(&others, at) {
		return false
	}
	return runs.meets(runs.count-1, &others, others.count-1, at)
}

// OverlapsItself reports whether two elements of x have the same place, as with a stride of
// 0. The view fits its data (Check).
func (x Heads) OverlapsItself() bool {
	if x.isEmpty() {
		return false
	}
	d := [3]dimension{{x.B, x.SB}, {x.H, x.SH}, {x.N, x.SN}}
	sortDimensions(d[:])
	extent, nested := x.D, true
	for _, y := range d {
		if y.n == 1 {
			continue
		}
		nested = nested && y.stride >= extent
		extent += (y.n - 1) * y.stride
	}
	if nested {
		return false
	}
	// Two rows overlap where their distance is less than a row. The dimension of the
	// most rows is solved, and the distances along the other two are tried.
	most := 0
	for i := range d {
		if d[i].n > d[most].n {
			most = i
		}
	}
	p, q, r := d[most], d[(most+1)%3], d[(most+2)%3]
	for i := 1 - q.n; i < q.n; i++ {
		for j := 1 - r.n; j < r.n; j++ {
			rest := i*q.stride + j*r.stride
			if p.n == 1 || p.stride == 0 {
				if (i != 0 || j != 0 || p.n > 1) && rest > -x.D && rest < x.D {
					return true
				}
				continue
			}
			for _, k := range [3]int{-rest / p.stride, -rest/p.stride - 1, -rest/p.stride + 1} {
				if k <= -p.n || k >= p.n || k == 0 && i == 0 && j == 0 {
					continue
				}
				if gap := rest + k*p.stride; gap > -x.D && gap < x.D {
					return true
				}
			}
		}
	}
	return false
}

func (x *Heads) isEmpty() bool { return x.B == 0 || x.H == 0 || x.N == 0 || x.D == 0 }

// reach returns the number of elements from the first to the last.
func (x *Heads) reach() int { return (x.B-1)*x.SB + (x.H-1)*x.SH + (x.N-1)*x.SN + x.D }

// dimension is a dimension of n parts that lie a stride apart.
type dimension struct{ n, stride int }

func sortDimensions(d []dimension) {
	for i := 1; i < len(d); i++ {
		for j := i; j > 0 && d[j].stride < d[j-1].stride; j-- {
			d[j], d[j-1] = d[j-1], d[j]
		}
	}
}

// runs describes the bytes of a view: runs of bytes without gaps, in up to three dimensions
// in the order of their strides.
type runs struct {
	bytes int // of a run
	dims  [3]dimension
	ends  [3]int // bytes from the first to the last of a part, with all dimensions up to this
	count int    // of dimensions
}

// runs returns the bytes of x, whose elements have size bytes. Dimensions without gaps are
// part of the runs.
func (x *Heads) runs(size int) runs {
	all := [3]dimension{{x.B, x.SB * size}, {x.H, x.SH * size}, {x.N, x.SN * size}}
	sortDimensions(all[:])
	r := runs{bytes: x.D * size}
	for _, d := range all {
		last := r.count - 1
		switch {
		case d.n == 1 || d.stride == 0:
		case last < 0 && d.stride <= r.bytes:
			r.bytes += (d.n - 1) * d.stride
		case last >= 0 && d.stride == r.dims[last].n*r.dims[last].stride:
			r.dims[last].n *= d.n
		default:
			r.dims[r.count] = d
			r.count++
		}
	}
	end := r.bytes
	for i := range r.count {
		end += (r.dims[i].n - 1) * r.dims[i].stride
		r.ends[i] = end
	}
	return r
}

// isApart reports whether the runs of x and y cannot meet because all strides have a common
// divisor and their offsets modulo this divisor keep them apart. at is the first byte of y,
// relative to x.
func (x *runs) isApart(y *runs, at int) bool {
	divisor := 0
	for _, r := range [2]*runs{x, y} {
		for _, d := range r.dims[:r.count] {
			for a := d.stride; a != 0; {
				divisor, a = a, divisor%a
			}
		}
	}
	if divisor == 0 {
		return false
	}
	at = (at%divisor + divisor) % divisor
	return at >= x.bytes && at+y.bytes <= divisor
}

// meets reports whether the parts of x and y with dimensions up to i and j have a byte in
// common. The part of y begins at bytes after the part of x.
func (x *runs) meets(i int, y *runs, j, at int) bool {
	a, b := x.bytes, y.bytes
	if i >= 0 {
		a = x.ends[i]
	}
	if j >= 0 {
		b = y.ends[j]
	}
	switch {
	case at >= a || -at >= b:
		return false
	case i < 0 && j < 0:
		return true
	case i < 0 || j >= 0 && b > a:
		return y.meets(j, x, i, -at)
	}
	d, part := x.dims[i], x.bytes
	if i > 0 {
		part = x.ends[i-1]
	}
	first := max(ceilDiv(at-part+1, d.stride), 0)
	for k := first; k < d.n && k*d.stride < at+b; k++ {
		if x.meets(i-1, y, j, at-k*d.stride) {
			return true
		}
	}
	return false
}

// ceilDiv returns a/b rounded up, for b above 0.
func ceilDiv(a, b int) int {
	q := a / b
	if a > 0 && q*b != a {
		q++
	}
	return q
}
